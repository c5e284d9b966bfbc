// PostgreSQL's raw parse nodes, made fit for C++. Internal to parser/: only its .cpp files include
// it.
//
// The structs are layouts only: libpg_query exports PostgreSQL symbols of its own, and an elog
// outside the parser's error scope ends the process, so nothing here or in the walk calls a
// PostgreSQL function. Lists are read by the helpers below. Node types clash with ours by name
// (ColumnRef); PostgreSQL's are always written with a leading `::`.
//
// Never read a LimitOption: the enum differs between the library and these headers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

extern "C" {
#include "postgres.h"

#include "nodes/nodes.h"
#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"
#include "nodes/primnodes.h"
#include "nodes/value.h"
}

// port.h replaces the C library's names by macros.
#undef printf
#undef snprintf
#undef vsnprintf
#undef sprintf
#undef vsprintf
#undef fprintf
#undef vfprintf
#undef vprintf
#undef strerror
#undef strerror_r
#undef Abs
#undef Min
#undef Max
#undef _

namespace collegedb::parser {

template <class T>
[[nodiscard]] const T* as(const void* node) noexcept {
  return static_cast<const T*>(node);
}

[[nodiscard]] inline NodeTag tag_of(const void* node) noexcept {
  return static_cast<const ::Node*>(node)->type;
}

[[nodiscard]] inline bool is(const void* node, NodeTag tag) noexcept {
  return node != nullptr && tag_of(node) == tag;
}

[[nodiscard]] inline std::size_t size_of(const ::List* list) noexcept {
  return list == nullptr ? 0 : static_cast<std::size_t>(list->length);
}

// The cells of a T_List; empty for NIL.
[[nodiscard]] inline std::span<const ::ListCell> cells(const ::List* list) noexcept {
  if (list == nullptr || list->type != T_List) return {};
  return {list->elements, static_cast<std::size_t>(list->length)};
}

// Element `index` of a list that has it.
[[nodiscard]] inline const ::Node* at(const ::List* list, std::size_t index) noexcept {
  return static_cast<const ::Node*>(list->elements[index].ptr_value);
}

[[nodiscard]] inline std::string_view view(const char* text) noexcept {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

// Text of a String node; empty for any other node.
[[nodiscard]] inline std::string_view string_of(const void* node) noexcept {
  return is(node, T_String) ? view(as<::String>(node)->sval) : std::string_view();
}

// The last part of a qualified name.
[[nodiscard]] inline std::string_view last_of(const ::List* names) noexcept {
  return size_of(names) == 0 ? std::string_view() : string_of(at(names, size_of(names) - 1));
}

}  // namespace collegedb::parser
