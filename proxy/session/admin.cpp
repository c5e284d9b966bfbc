// collegedb_* functions and statements that run on every shard: asked of the control plane, and
// its answer made into protocol messages.
#include <algorithm>

#include "proxy/session/admin_value.h"
#include "proxy/session/made_replies.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

using routing::PlanKind;

const AdminFunction* find_function(std::span<const AdminFunction> functions,
                                   std::string_view name) {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const AdminFunction& f) { return f.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

SqlError no_function(std::string_view name, std::string_view why) {
  return make_error("42883",
                    "function " + std::string(name) + " does not exist" +
                        (why.empty() ? "" : ": " + std::string(why)),
                    "\\df collegedb_* lists the functions and their arguments.");
}

// Which declared argument each argument of the call stands for.
Result<std::vector<std::size_t>> match_arguments(const AdminFunction& function,
                                                 const parser::LoneCall& call) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    std::size_t place = i;
    const std::string& name = call.arguments[i].name;
    if (!name.empty()) {
      const auto found =
          std::find_if(function.arguments.begin(), function.arguments.end(),
                       [&](const AdminFunction::Argument& a) { return a.name == name; });
      if (found == function.arguments.end()) {
        return no_function(function.name, "it has no argument named \"" + name + "\"");
      }
      place = static_cast<std::size_t>(found - function.arguments.begin());
    }
    if (place >= function.arguments.size()) {
      return no_function(function.name, "too many arguments");
    }
    if (std::find(places.begin(), places.end(), place) != places.end()) {
      return make_error("42601", "argument name \"" + std::string(function.arguments[place].name) +
                                     "\" used more than once");
    }
    places.push_back(place);
  }
  return places;
}

Result<std::optional<std::string>> argument_text(const parser::Value& value,
                                                 std::span<const routing::Parameter> parameters,
                                                 const AdminFunction::Argument& argument) {
  using Kind = parser::Value::Kind;
  switch (value.kind) {
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kNumeric:
    case Kind::kBool:
      return std::optional<std::string>(value.text);
    case Kind::kNull:
      return std::optional<std::string>();
    case Kind::kParam:
      if (value.param == 0 || value.param > parameters.size()) {
        return std::optional<std::string>();  // being described: no values yet
      }
      {
        const routing::Parameter& parameter = parameters[value.param - 1];
        return parameter_text(parameter, parameter.type != 0 ? parameter.type : argument.type_oid);
      }
    default:
      return make_error("0A000",
                        "argument " + std::string(argument.name) +
                            " of an admin function must be a literal or a parameter",
                        "Compute the value first and pass it.");
  }
}

// Indexes into AdminFunction::columns of what the call selects, and the names to give them.
struct Selection {
  std::vector<std::size_t> columns;
  std::vector<std::string> labels;
};

Result<Selection> selection_of(const AdminFunction& function, const parser::LoneCall& call) {
  Selection selection;
  if (call.columns.empty()) {
    for (std::size_t i = 0; i < function.columns.size(); ++i) {
      selection.columns.push_back(i);
      selection.labels.emplace_back(function.columns[i].name);
    }
    if (!call.in_from && function.columns.size() == 1 && !call.column_labels.empty()) {
      selection.labels.front() = call.column_labels.front();
    }
    return selection;
  }
  for (std::size_t i = 0; i < call.columns.size(); ++i) {
    const auto found =
        std::find_if(function.columns.begin(), function.columns.end(),
                     [&](const AdminFunction::Column& c) { return c.name == call.columns[i]; });
    if (found == function.columns.end()) {
      return make_error("42703", "column \"" + call.columns[i] + "\" does not exist");
    }
    selection.columns.push_back(static_cast<std::size_t>(found - function.columns.begin()));
    selection.labels.push_back(i < call.column_labels.size() ? call.column_labels[i]
                                                             : call.columns[i]);
  }
  return selection;
}

bool is_binary(std::span<const std::int16_t> formats, std::size_t column) {
  if (formats.empty()) {
    return false;
  }
  return formats.size() == 1 ? formats[0] == 1 : column < formats.size() && formats[column] == 1;
}

void append_description(const AdminFunction& function, const Selection& selection,
                        std::span<const std::int16_t> formats, std::string& out) {
  wire::RowDescription description;
  for (std::size_t i = 0; i < selection.columns.size(); ++i) {
    wire::FieldDescription field;
    field.name = selection.labels[i];
    field.type_oid = function.columns[selection.columns[i]].type_oid;
    field.type_size = type_size(field.type_oid);
    field.format = is_binary(formats, i) ? 1 : 0;
    description.fields.push_back(field);
  }
  description.encode(out);
}

}  // namespace

Result<ControlRequest> SessionImpl::control_request(
    const routing::Plan& plan, std::string_view text,
    std::span<const routing::Parameter> parameters) {
  ControlRequest request;
  request.context = session_context();
  if (plan.kind == PlanKind::kBroadcast) {
    if (txn_.open()) {
      return make_error(ErrorCode::kCrossShardTransaction,
                        plan.statement.verb +
                            " runs on every shard and cannot be part of a transaction block yet",
                        "Run it outside BEGIN ... COMMIT.");
    }
    request.what =
        Broadcast{std::string(text.substr(plan.statement.location, plan.statement.length)),
                  plan.transactional_ddl};
    return request;
  }
  const parser::LoneCall& call = *plan.statement.lone_call;
  AdminCall admin;
  admin.function = find_function(context_.admin_functions, call.function.name);
  if (admin.function == nullptr) {
    return no_function(call.function.name, "");
  }
  if (admin.function->admin_only && txn_.bound()) {
    return make_error("25001",
                      std::string(admin.function->name) +
                          " cannot run inside a transaction block that has touched a shard",
                      "Run it outside BEGIN ... COMMIT.");
  }
  const auto places = match_arguments(*admin.function, call);
  if (!places) {
    return places.error();
  }
  admin.arguments.resize(admin.function->arguments.size());
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const std::size_t place = (*places)[i];
    auto value =
        argument_text(call.arguments[i].value, parameters, admin.function->arguments[place]);
    if (!value) {
      return value.error();
    }
    admin.arguments[place] = std::move(*value);
  }
  for (std::size_t i = 0; i < admin.arguments.size(); ++i) {
    if (admin.function->arguments[i].required &&
        std::holds_alternative<std::monostate>(admin.arguments[i])) {
      return no_function(
          call.function.name,
          "argument \"" + std::string(admin.function->arguments[i].name) + "\" is missing");
    }
  }
  const auto selection = selection_of(*admin.function, call);
  if (!selection) {
    return selection.error();
  }
  admin.user = identity_.user;
  admin.is_admin = identity_.is_admin;
  request.what = std::move(admin);
  return request;
}

void SessionImpl::start_control(ControlRequest request, Step then) {
  control_ = std::move(request);
  control_reply_.reset();
  step_ = then;
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kControl;
  wait_.control = &*control_;
}

std::optional<SqlError> SessionImpl::describe_made(const routing::Plan* plan,
                                                   std::span<const std::int16_t> formats,
                                                   bool statement, std::string& out) const {
  const bool admin = plan != nullptr && plan->kind == PlanKind::kAdmin;
  const AdminFunction* function =
      admin ? find_function(context_.admin_functions, plan->statement.lone_call->function.name)
            : nullptr;
  if (admin && function == nullptr) {
    return no_function(plan->statement.lone_call->function.name, "");
  }
  if (statement) {
    wire::ParameterDescription parameters;
    if (admin) {
      parameters.types.assign(plan->statement.max_param, kTextOid);
      const parser::LoneCall& call = *plan->statement.lone_call;
      const auto places = match_arguments(*function, call);
      if (!places) {
        return places.error();
      }
      for (std::size_t i = 0; i < call.arguments.size(); ++i) {
        const parser::Value& value = call.arguments[i].value;
        if (value.kind == parser::Value::Kind::kParam && value.param > 0) {
          parameters.types[value.param - 1] = function->arguments[(*places)[i]].type_oid;
        }
      }
    }
    parameters.encode(out);
  }
  if (!admin) {
    wire::encode_no_data(out);
    return std::nullopt;
  }
  const auto selection = selection_of(*function, *plan->statement.lone_call);
  if (!selection) {
    return selection.error();
  }
  append_description(*function, *selection, formats, out);
  return std::nullopt;
}

bool SessionImpl::render_control(const routing::Plan& plan, std::span<const std::int16_t> formats,
                                 bool with_description) {
  const ControlReply reply = *std::exchange(control_reply_, std::nullopt);
  if (const auto* error = std::get_if<SqlError>(&reply)) {
    turn_error_ = *error;
    return false;
  }
  if (const auto* done = std::get_if<BroadcastDone>(&reply)) {
    for (const SqlError& notice : done->notices) {
      wire::encode_notice(client_out_, notice);
    }
    wire::CommandComplete{done->tag}.encode(client_out_);
    return true;
  }
  const AdminFunction& function =
      *find_function(context_.admin_functions, plan.statement.lone_call->function.name);
  const auto selection = selection_of(function, *plan.statement.lone_call);
  const auto& rows = std::get<AdminRows>(reply).rows;
  if (row_limit_ > 0 && rows.size() > row_limit_) {
    turn_error_ = row_limit_error();
    return false;
  }
  std::string out;
  if (with_description) {
    append_description(function, *selection, formats, out);
  }
  for (const auto& row : rows) {
    std::vector<std::string> binary(selection->columns.size());
    wire::DataRow data;
    for (std::size_t i = 0; i < selection->columns.size(); ++i) {
      const std::size_t column = selection->columns[i];
      if (column >= row.size() || !row[column]) {
        data.values.emplace_back(std::nullopt);
        continue;
      }
      if (!is_binary(formats, i)) {
        data.values.emplace_back(*row[column]);
        continue;
      }
      auto value = to_binary(*row[column], function.columns[column].type_oid);
      if (!value) {
        turn_error_ = value.error();
        return false;
      }
      binary[i] = std::move(*value);
      data.values.emplace_back(binary[i]);
    }
    data.encode(out);
  }
  client_out_ += out;
  end_rows(rows.size());
  return true;
}

void SessionImpl::end_rows(std::size_t rows) {
  if (row_limit_ == 0 || rows < row_limit_) {
    wire::CommandComplete{"SELECT " + std::to_string(rows)}.encode(client_out_);
    return;
  }
  wire::encode_portal_suspended(client_out_);
  portals_[running_portal_].suspended = true;
}

void SessionImpl::simple_control_done() {
  const auto plan = plan_;
  if (!render_control(*plan, {}, true)) {
    abort_and_fail(*std::exchange(turn_error_, std::nullopt));
    return;
  }
  finish_turn();
}

void SessionImpl::extended_control_done() {
  const auto plan = plan_;
  if (!render_control(*plan, control_formats_, false)) {
    fail_batch(*std::exchange(turn_error_, std::nullopt));
    return;
  }
  step_batch();
}

}  // namespace collegedb::session
