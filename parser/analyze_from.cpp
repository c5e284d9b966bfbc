// FROM: relations, their aliases and the conditions of joins.
#include <algorithm>

#include "parser/analyzer.h"

namespace collegedb::parser {

// A join seen in FROM. Items of a subtree are neighbours in LevelScope::items, in reading order.
struct Analyzer::Join {
  const ::JoinExpr* expr = nullptr;
  ItemRange left;
  ItemRange right;
  // Innermost nullable side of an outer join around this join; the whole level when none.
  std::optional<std::size_t> region;

  [[nodiscard]] ItemRange both() const noexcept { return {left.begin, right.end}; }
};

namespace {

using Region = std::optional<std::size_t>;

// One node of FROM being walked, with an explicit stack since join trees may be deep on any side.
struct Frame {
  const ::Node* node = nullptr;
  Region region;
  int step = 0;
  ItemRange left;
  ItemRange right;
  Region side;  // the region opened for the side being walked, when that side is nullable
};

Frame frame_of(const ::Node* node, Region region) {
  Frame frame;
  frame.node = node;
  frame.region = region;
  return frame;
}

bool left_is_nullable(const ::JoinExpr& join) {
  return join.jointype == JOIN_RIGHT || join.jointype == JOIN_FULL;
}
bool right_is_nullable(const ::JoinExpr& join) {
  return join.jointype == JOIN_LEFT || join.jointype == JOIN_FULL;
}

}  // namespace

void Analyzer::from(std::span<const ::ListCell> clause, LevelScope& scope) {
  boost::container::small_vector<Join, 4> joins;
  boost::container::small_vector<ItemRange, 4> regions;
  boost::container::small_vector<Frame, 4> stack;
  const auto enter = [&](Frame& frame, bool nullable) {
    frame.side.reset();
    if (!nullable) return frame.region;
    frame.side = regions.size();
    regions.push_back({scope.items.size(), scope.items.size()});
    return frame.side;
  };
  const auto leave = [&](const Frame& frame) {
    if (frame.side) regions[*frame.side].end = scope.items.size();
  };

  for (const ::ListCell& cell : clause) {
    stack.push_back(frame_of(as<::Node>(cell.ptr_value), std::nullopt));
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (!is(frame.node, T_JoinExpr)) {
        const std::size_t first = out_.tables.size();
        from_item(frame.node, scope);
        for (std::size_t i = first; frame.region && i < out_.tables.size(); ++i) {
          out_.tables[i].nullable = true;
        }
        stack.pop_back();
        continue;
      }
      const auto& join = *as<::JoinExpr>(frame.node);
      const std::size_t now = scope.items.size();
      switch (frame.step++) {
        case 0: {
          frame.left.begin = now;
          const Region region = enter(frame, left_is_nullable(join));
          stack.push_back(frame_of(join.larg, region));
          break;
        }
        case 1: {
          leave(frame);
          frame.left.end = now;
          frame.right.begin = now;
          const Region region = enter(frame, right_is_nullable(join));
          stack.push_back(frame_of(join.rarg, region));
          break;
        }
        default:
          leave(frame);
          frame.right.end = now;
          joins.push_back({&join, frame.left, frame.right, frame.region});
          stack.pop_back();
          break;
      }
    }
  }

  for (const Join& join : joins) {
    push(join.expr->quals);
    if (join.expr->usingClause != nullptr || join.expr->isNatural) add_operator("=");
    if (join.expr->alias != nullptr) add_row_alias(view(join.expr->alias->aliasname));
    if (join.expr->join_using_alias != nullptr) {
      add_row_alias(view(join.expr->join_using_alias->aliasname));
    }
    if (!scope.too_wide()) {
      const ItemRange outermost = join.region ? regions[*join.region] : scope.all();
      join_conditions(join, outermost, scope);
    }
  }
}

void Analyzer::join_conditions(const Join& join, const ItemRange& around, LevelScope& scope) {
  ConditionPlace place{.visible = join.both(), .restricted = {}};
  switch (join.expr->jointype) {
    case JOIN_INNER:
      place.restricted = around;
      break;
    case JOIN_LEFT:
      place.restricted = join.right;
      break;
    case JOIN_RIGHT:
      place.restricted = join.left;
      break;
    default:
      break;
  }
  if (join.expr->usingClause != nullptr) {
    using_conditions(join, place, scope);
  } else if (!join.expr->isNatural) {
    conditions(join.expr->quals, scope, place);
  }
  if (join.expr->alias == nullptr) return;
  for (std::size_t i = join.left.begin; i < join.right.end; ++i) {
    scope.items[i].hidden = true;
    if (join.expr->alias->colnames != nullptr) scope.items[i].renamed = true;
  }
}

// The item whose column `name` a USING clause means on one side: the one that an inner USING made
// the representative of the merged column, else the only item there.
std::optional<std::size_t> LevelScope::using_item(std::string_view name,
                                                  const ItemRange& side) const {
  for (auto merge = merged.rbegin(); merge != merged.rend(); ++merge) {
    if (merge->name == name && merge->range.begin >= side.begin && merge->range.end <= side.end) {
      return merge->item;
    }
  }
  if (side.end - side.begin == 1) return side.begin;
  return std::nullopt;
}

void Analyzer::using_conditions(const Join& join, const ConditionPlace& place, LevelScope& scope) {
  for (const ::ListCell& cell : cells(join.expr->usingClause)) {
    const std::string_view name = string_of(cell.ptr_value);
    const auto left = scope.using_item(name, join.left);
    const auto right = scope.using_item(name, join.right);
    LevelScope::Merged merge{name, join.both(), std::nullopt};
    if (join.expr->jointype == JOIN_INNER) {
      merge.item = left ? left : right;
    } else if (join.expr->jointype == JOIN_LEFT) {
      merge.item = left;
    } else if (join.expr->jointype == JOIN_RIGHT) {
      merge.item = right;
    }
    scope.merged.push_back(merge);

    if (!left || !right) continue;
    const RangeItem& a = scope.items[*left];
    const RangeItem& b = scope.items[*right];
    if (a.table < 0 || b.table < 0 || a.renamed || b.renamed) continue;
    Conjunct conjunct;
    conjunct.kind = Conjunct::Kind::kColumns;
    conjunct.column = {a.table, scope.level, std::string(name)};
    conjunct.other = {b.table, scope.level, std::string(name)};
    add_conjunct(std::move(conjunct), scope, place);
  }
}

void Analyzer::from_item(const ::Node* node, LevelScope& scope) {
  if (node == nullptr) return;
  if (is(node, T_RangeTableSample)) {
    const auto& sample = *as<::RangeTableSample>(node);
    push_list(sample.args);
    push(sample.repeatable);
    return from_item(sample.relation, scope);
  }
  RangeItem item;
  const ::Alias* alias = nullptr;
  switch (tag_of(node)) {
    case T_RangeVar: {
      const auto& relation = *as<::RangeVar>(node);
      if (!is_cte(relation)) {
        add_item(relation, scope, false);
        return;
      }
      item.name = view(relation.relname);
      alias = relation.alias;
      break;
    }
    case T_RangeSubselect:
      if (level_ == 0) out_.select.has_subquery = true;
      push_query(as<::RangeSubselect>(node)->subquery);
      alias = as<::RangeSubselect>(node)->alias;
      break;
    case T_RangeFunction:
      push(node);
      alias = as<::RangeFunction>(node)->alias;
      break;
    case T_RangeTableFunc:
      push(node);
      alias = as<::RangeTableFunc>(node)->alias;
      break;
    default:
      return fail("0A000", "unsupported item in FROM");
  }
  if (alias != nullptr) {
    item.name = view(alias->aliasname);
    item.aliased = true;
    item.renamed = alias->colnames != nullptr;
  }
  add_row_alias(item.name);
  scope.items.push_back(item);
}

int Analyzer::add_table(const ::RangeVar& relation, int level, bool written) {
  TableRef table;
  table.name = {std::string(view(relation.schemaname)), std::string(view(relation.relname))};
  table.alias =
      relation.alias != nullptr ? view(relation.alias->aliasname) : view(relation.relname);
  table.level = level;
  table.written = written;
  out_.tables.push_back(std::move(table));
  return static_cast<int>(out_.tables.size()) - 1;
}

int Analyzer::add_item(const ::RangeVar& relation, LevelScope& scope, bool written) {
  RangeItem item;
  item.table = add_table(relation, scope.level, written);
  item.name = view(relation.relname);
  item.schema = view(relation.schemaname);
  if (relation.alias != nullptr) {
    item.name = view(relation.alias->aliasname);
    item.aliased = true;
    item.renamed = relation.alias->colnames != nullptr;
    if (item.renamed) add_row_alias(item.name);
  }
  scope.items.push_back(item);
  return item.table;
}

}  // namespace collegedb::parser
