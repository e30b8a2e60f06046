// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_queue.hpp"

namespace espalier {

struct QueueMark::Event {};

ExecSpace make_queue() { return ExecSpace(); }
void reserve_marks(int) {}
void order_after(const ExecSpace&, const ExecSpace&) {}

QueueMark::QueueMark() = default;
QueueMark::~QueueMark() = default;
QueueMark::QueueMark(QueueMark&&) noexcept = default;
QueueMark& QueueMark::operator=(QueueMark&&) noexcept = default;
void QueueMark::set(const ExecSpace&) {}
bool QueueMark::reached() const { return true; }
void QueueMark::hold(const ExecSpace&) const {}

}  // namespace espalier
