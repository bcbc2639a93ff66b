# vcoll_warnings: the flags every target of the project is compiled with.
add_library(vcoll_warnings INTERFACE)
target_compile_options(vcoll_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wconversion -Wshadow>
  $<$<AND:$<BOOL:${VCOLL_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(VCOLL_SANITIZE)
  target_compile_options(vcoll_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${VCOLL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(vcoll_warnings INTERFACE -fsanitize=${VCOLL_SANITIZE})
  # GCC 12 takes variables of its own <regex> for uninitialized in code with sanitizers in it.
  target_compile_options(vcoll_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
