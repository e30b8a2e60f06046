# cmake --install, and find_package(Espalier) for programs that embed it.
include(CMakePackageConfigHelpers)

foreach(module core parallel models io planning training diagnosis)
  if(TARGET espalier_${module})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${module} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/espalier
            FILES_MATCHING PATTERN "*.hpp")
  endif()
endforeach()
install(EXPORT EspalierTargets NAMESPACE espalier:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Espalier)

# With its path, for programs that are built against the install.
find_program(ESPALIER_MPI_CXX_COMPILER NAMES ${MPI_CXX_COMPILER} NO_CACHE)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/EspalierConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/EspalierConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Espalier)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/EspalierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/EspalierConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/EspalierConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Espalier)

if(ESPALIER_ENABLE_APP)
  set(doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/espalier)
  install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${doc})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${doc} USE_SOURCE_PERMISSIONS)
endif()
