// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/training_state.hpp"

#include <fmt/format.h>

#include <set>

#include "core/ops/matmul.hpp"
#include "parallel/collectives.hpp"

namespace espalier {
namespace {

template <class T>
struct FlatArray {
  const char* group;  // in front of the parameter's name in the checkpoint
  Tensor<State<T>, 1> data;
};

template <class T>
std::array<FlatArray<T>, 3> flat_arrays(const ParameterStore<T>& parameters, const AdamW<T>& optimizer) {
  return {{{"weights", parameters.flat_masters()},
           {"exp_avg", optimizer.exp_avg()},
           {"exp_avg_sq", optimizer.exp_avg_sq()}}};
}

std::string stored_name(const char* group, const Parameter& parameter) {
  return fmt::format("{}/{}", group, parameter.spec.name);
}

// The box of the logical tensor that this rank holds.
std::vector<Index> local_start(const Parameter& parameter) {
  std::vector<Index> start(parameter.spec.shape.size(), 0);
  const auto dim = static_cast<std::size_t>(parameter.spec.shard.dim);
  start[dim] = parameter.spec.shard.part * parameter.local_shape[dim];
  return start;
}

// A checkpoint of another model is refused as a whole, before anything is read.
template <class T>
void check_same_model(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters) {
  const auto refuse = [&](const std::string& got, const std::string& wanted) {
    throw Error(ExitCode::checkpoint,
                {.what = "the checkpoint belongs to another model",
                 .where = checkpoint.path().string(),
                 .got = got,
                 .wanted = wanted,
                 .todo = "use the [model] section that wrote it (`espalier checkpoint inspect` shows it)"});
  };
  std::set<std::string> expected;
  for (const Parameter& parameter : parameters.parameters()) {
    const std::string name = stored_name("weights", parameter);
    expected.insert(name);
    if (!checkpoint.contains(name))
      refuse("no tensor " + name, name + " " + shape_text(parameter.spec.shape));
    if (checkpoint.tensor(name).global_shape != parameter.spec.shape)
      refuse(name + " " + shape_text(checkpoint.tensor(name).global_shape),
             name + " " + shape_text(parameter.spec.shape));
  }
  for (const TensorInfo& tensor : checkpoint.tensors())
    if (tensor.name.starts_with("weights/") && !expected.contains(tensor.name))
      refuse("a tensor " + tensor.name + " that the model has not", "only the model's tensors");
}

template <class T>
void load_array(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters, const FlatArray<T>& array) {
  const auto host = Kokkos::create_mirror_view(array.data);
  for (const Parameter& parameter : parameters.parameters())
    checkpoint.read(stored_name(array.group, parameter), local_start(parameter), parameter.local_shape,
                    scalar_type_of<State<T>>(), host.data() + parameter.offset);
  Kokkos::deep_copy(array.data, host);
}

template <class T>
nlohmann::json state_of(const Trainer<T>& trainer, const RunConfig& config) {
  return {{"step", trainer.steps_done()},
          {"data_position", trainer.data_position()},
          {"tokens", trainer.data_position() * config.batch.sequence_length},
          {"loss", trainer.last_loss()},
          {"tokenizer", trainer.tokenizer()},
          {"seed", config.run.seed},
          {"config", to_toml(config)},
          {"matmul", to_string(matmul_library())},
          {"kokkos", KOKKOS_VERSION}};
}

}  // namespace

template <class T>
Path save_training_state(const Path& directory, const Trainer<T>& trainer, const RunConfig& config,
                         const ProcessMesh& mesh, const std::string& run_name) {
  Path path;
  if (mesh.world().rank() == 0) {
    std::vector<TensorBlock> blocks;
    std::vector<HostTensor<State<T>, 1>> mirrors;  // keep the host copies alive while they are written
    for (const FlatArray<T>& array : flat_arrays(trainer.parameters(), trainer.optimizer())) {
      const auto host = mirrors.emplace_back(Kokkos::create_mirror_view(array.data));
      Kokkos::deep_copy(host, array.data);
      for (const Parameter& parameter : trainer.parameters().parameters())
        blocks.push_back({stored_name(array.group, parameter), scalar_type_of<State<T>>(), parameter.spec.shape,
                          local_start(parameter), parameter.local_shape, host.data() + parameter.offset});
    }
    CheckpointInfo info;
    info.run = run_name;
    info.step = trainer.steps_done();
    info.layout = {{"text", mesh.layout().text()}, {"world", mesh.world().size()}};
    info.state = state_of(trainer, config);
    path = save_checkpoint(directory, info, blocks);
  }
  barrier(mesh.world());  // nobody trains on, or exits, while the step is not safe
  return path;
}

template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters) {
  check_same_model(checkpoint, parameters);
  load_array<T>(checkpoint, parameters, {"weights", parameters.flat_masters()});
  const auto masters = parameters.flat_masters();
  const auto weights = parameters.flat_weights();
  Kokkos::parallel_for(
      "espalier::training::load_weights::convert", Kokkos::RangePolicy<ExecSpace>(0, parameters.flat_size()),
      KOKKOS_LAMBDA(const Index i) { weights(i) = static_cast<T>(masters(i)); });
}

template <class T>
void load_training_state(const CheckpointReader& checkpoint, Trainer<T>& trainer) {
  load_weights(checkpoint, trainer.parameters());
  for (const FlatArray<T>& array : flat_arrays(trainer.parameters(), trainer.optimizer()))
    if (std::string_view(array.group) != "weights")
      load_array(checkpoint, trainer.parameters(), array);
  const nlohmann::json& state = checkpoint.state();
  try {
    trainer.restore(state.at("step").get<Index>(), state.at("data_position").get<Index>(),
                    state.at("loss").get<double>());
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's state is incomplete",
                                       .where = checkpoint.path().string(),
                                       .got = error.what(),
                                       .wanted = "step, data_position and loss",
                                       .todo = "resume from an older checkpoint"});
  }
}

#define ESPALIER_INSTANTIATE(T)                                                                              \
  template Path save_training_state<T>(const Path&, const Trainer<T>&, const RunConfig&, const ProcessMesh&, \
                                       const std::string&);                                                  \
  template void load_training_state<T>(const CheckpointReader&, Trainer<T>&);                                \
  template void load_weights<T>(const CheckpointReader&, const ParameterStore<T>&);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
