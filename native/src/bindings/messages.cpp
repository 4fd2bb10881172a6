// Messages, tool calls and tools: what a prompt is rendered from.
#include "bindings/bindings.hpp"
#include "bindings/live_fields.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

void bind_messages(py::module_& module) {
    py::class_<MessageContent>(module, "MessageContent", "One part of a message: its type and its text.")
        .def(py::init<>())
        .def(py::init([](std::string type, std::string content) {
                 return MessageContent{std::move(type), std::move(content)};
             }),
             py::arg("type"), py::arg("content"))
        .def_readwrite("type", &MessageContent::type)
        .def_readwrite("content", &MessageContent::content);

    py::class_<MessageToolCall>(module, "MessageToolCall", "A call that the model made.")
        .def(py::init<>())
        .def_readwrite("id", &MessageToolCall::id)
        .def_readwrite("type", &MessageToolCall::type)
        .def_readwrite("name", &MessageToolCall::name)
        .def_readwrite("arguments", &MessageToolCall::arguments)
        .def_readwrite("arguments_is_string", &MessageToolCall::arguments_is_string);

    py::class_<Message> message(module, "Message", "One turn of a conversation.");
    message.def(py::init<>())
        .def(py::init([](std::string role, std::vector<MessageContent> contents) {
                 Message made;
                 made.role = std::move(role);
                 made.contents = std::move(contents);
                 return made;
             }),
             py::arg("role"), py::arg("contents"))
        .def_readwrite("role", &Message::role)
        .def_readwrite("reasoning_content", &Message::reasoning_content)
        .def_readwrite("has_reasoning_content", &Message::has_reasoning_content)
        .def_readwrite("has_tool_calls", &Message::has_tool_calls)
        .def_readwrite("tool_call_id", &Message::tool_call_id)
        .def_readwrite("name", &Message::name)
        .def_readwrite("has_content", &Message::has_content)
        .def_readwrite("content_is_array", &Message::content_is_array)
        .def_readwrite("content_is_null", &Message::content_is_null);
    def_live_list(message, "contents", &Message::contents);
    def_live_list(message, "tool_calls", &Message::tool_calls);

    py::class_<ToolDefinition>(module, "ToolDefinition", "A function that the model may call.")
        .def(py::init<>())
        .def_readwrite("name", &ToolDefinition::name)
        .def_readwrite("description", &ToolDefinition::description)
        .def_readwrite("parameters", &ToolDefinition::parameters)
        .def_readwrite("strict", &ToolDefinition::strict)
        .def_readwrite("has_description", &ToolDefinition::has_description)
        .def_readwrite("has_parameters", &ToolDefinition::has_parameters)
        .def_readwrite("has_strict", &ToolDefinition::has_strict);

    py::class_<ToolChoice>(module, "ToolChoice", "Which tools the model may or must call.")
        .def(py::init<>())
        .def_readwrite("mode", &ToolChoice::mode)
        .def_readwrite("function_name", &ToolChoice::function_name);

    module.def(
        "create_text_message",
        [](std::string role, std::string text) {
            Message made;
            made.role = std::move(role);
            made.contents = {MessageContent{"text", std::move(text)}};
            return made;
        },
        py::arg("role"), py::arg("text"), "Make a message of one text part.");
}

}  // namespace edgellm::bindings
