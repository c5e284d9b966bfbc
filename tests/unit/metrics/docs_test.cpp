// The tables of docs/metrics.md and docs/errors.md say what the code says.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "metrics/stats.h"

namespace collegedb::metrics {
namespace {

// Rows of the first table of a page whose first cell is in backquotes, as cells without blanks
// around and without backquotes.
std::vector<std::vector<std::string>> first_table(const std::string& page) {
  std::ifstream file(std::string(COLLEGEDB_SOURCE_DIR) + "/docs/" + page);
  EXPECT_TRUE(file) << page;
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) {
      if (!rows.empty()) break;
      continue;
    }
    std::vector<std::string> cells;
    std::size_t start = 1;
    for (auto end = line.find('|', start); end != std::string::npos;
         start = end + 1, end = line.find('|', start)) {
      const auto first = line.find_first_not_of(" `", start);
      const auto last = line.find_last_not_of(" `", end - 1);
      cells.push_back(first >= end ? "" : line.substr(first, last - first + 1));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

TEST(DocsTest, MetricsPageListsEveryFamily) {
  constexpr const char* kTypes[] = {"counter", "gauge", "histogram"};
  const auto rows = first_table("metrics.md");
  ASSERT_EQ(rows.size(), families().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& info = families()[i];
    ASSERT_EQ(rows[i].size(), 4U) << info.name;
    EXPECT_EQ(rows[i][0], info.name);
    EXPECT_EQ(rows[i][1], kTypes[static_cast<std::size_t>(info.type)]) << info.name;
    EXPECT_EQ(rows[i][2], info.labels) << info.name;
    EXPECT_EQ(rows[i][3], info.help) << info.name;
  }
}

TEST(DocsTest, ErrorsPageListsEveryCode) {
  const auto rows = first_table("errors.md");
  ASSERT_EQ(rows.size(), kErrorCodes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    ASSERT_EQ(rows[i].size(), 4U) << name_of(code);
    EXPECT_EQ(rows[i][0], name_of(code));
    EXPECT_EQ(rows[i][1], sqlstate_of(code)) << name_of(code);
    EXPECT_FALSE(rows[i][2].empty()) << name_of(code);
  }
}

}  // namespace
}  // namespace collegedb::metrics
