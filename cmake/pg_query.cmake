# The parser walks libpg_query's raw tree, so it needs the node headers of the same PostgreSQL major.
# Sets COLLEGEDB_PG_NODE_INCLUDES. parser/pg_query.cpp checks the two versions again at compile time.
find_path(PG_QUERY_INCLUDE pg_query.h REQUIRED)
file(STRINGS ${PG_QUERY_INCLUDE}/pg_query.h major REGEX "define PG_MAJORVERSION ")
string(REGEX REPLACE ".*\"([0-9]+)\".*" "\\1" major "${major}")
find_path(PG_NODE_INCLUDE nodes/parsenodes.h
  PATHS /usr/include/postgresql/${major}/server /usr/local/include/postgresql/server NO_DEFAULT_PATH)
if(NOT PG_NODE_INCLUDE)
  message(FATAL_ERROR "node headers of PostgreSQL ${major} not found; install postgresql-server-dev-${major}")
endif()
set(COLLEGEDB_PG_NODE_INCLUDES ${PG_NODE_INCLUDE} ${PG_QUERY_INCLUDE}/pg_query)
