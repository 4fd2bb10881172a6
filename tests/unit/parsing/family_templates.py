"""Chat templates in the shape of well-known model families, written small for these tests: how each shows tools,
calls, results and reasoning, and what each refuses."""

from __future__ import annotations

from collections.abc import Mapping

QWEN3 = """
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools>\nAnswer with <tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content if message.content is string else '' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if reasoning %}{{- '<think>\n' + reasoning + '\n</think>\n\n' }}{%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}
            {%- set call = call.function or call %}
            {{- '<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

# Calls as elements, arguments one by one.
QWEN3_CODER = """
{%- if tools %}
    {{- '<|im_start|>system\nUse <function=NAME> and <parameter=KEY>.\n' }}
    {%- for tool in tools %}{{- tool.function.name + ': ' + (tool.function.parameters | tojson) + '\n' }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\n' }}
    {{- message.content if message.content is string else '' }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\n<function=' + call.function.name + '>\n' }}
        {%- for key, value in call.function.arguments | items %}
            {{- '<parameter=' + key + '>\n' }}
            {{- value if value is string else value | tojson }}
            {{- '\n</parameter>\n' }}
        {%- endfor %}
        {{- '</function>\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

# Bare JSON calls with "parameters"; one call a turn; the tools stand in the first user message.
LLAMA3 = """
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' + system_message + '<|eot_id|>' }}
{%- if tools is not none %}
    {%- if messages | length == 0 %}{{- raise_exception('There is no first user message') }}{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\nRespond with {"name": NAME, "parameters": OBJECT}.\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}
    {{- messages[0]['content'] | trim + '<|eot_id|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
        {{- message.content | tojson if message.content is mapping else message.content }}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
"""

HERMES = """
{{- '<|im_start|>system\nYou call functions within <tool_call></tool_call>. <tools>' }}
{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}
{{- '</tools><|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- for call in message.tool_calls %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\n<tool_response>\n' + message.content + '\n</tool_response>\n<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

# Ids of nine letters and digits, roles that alternate, tools before the last user message.
MISTRAL = """
{{- bos_token }}
{%- set ns = namespace(turn=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {%- if (message.role == 'user') != (ns.turn % 2 == 0) %}
            {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant') }}
        {%- endif %}
        {%- set ns.turn = ns.turn + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and loop.last %}
            {{- '[AVAILABLE_TOOLS][' }}
            {%- for tool in tools %}{{- tool | tojson }}{{- ', ' if not loop.last }}{%- endfor %}
            {{- '][/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' and message.tool_calls %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {%- if call.id is not defined or call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
            {{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {%- if message.tool_call_id is not defined or message.tool_call_id | length != 9 %}
            {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
        {%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + message.content | tojson + ', "call_id": "' + message.tool_call_id }}
        {{- '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Only user, assistant and tool roles are supported') }}
    {%- endif %}
{%- endfor %}
"""

# Always thinks: the prompt opens the block. Reasoning of earlier turns is dropped. No tools.
DEEPSEEK_R1 = """
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{%- set ns.system = message['content'] %}{%- endif %}
{%- endfor %}
{{- bos_token + ns.system }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {{- '<|User|>' + message['content'] }}
    {%- elif message['role'] == 'assistant' and message['content'] is not none %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
        {{- '<|Assistant|>' + content + eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|Assistant|><think>\n' }}{%- endif %}
"""

# A list of calls between capital marks; thinking is switched.
NEMOTRON = """
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{{- '<SPECIAL_10>System\n' + system + '\n' }}
{%- if tools %}
    {{- '<AVAILABLE_TOOLS>[' }}
    {%- for tool in tools %}{{- tool.function | tojson }}{{- ', ' if not loop.last }}{%- endfor %}
    {{- ']</AVAILABLE_TOOLS>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<SPECIAL_11>User\n' + message.content + '\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<SPECIAL_11>User\n<TOOL_RESPONSE>[' + message.content + ']</TOOL_RESPONSE>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<SPECIAL_11>Assistant\n' }}
        {%- set content = message.content or '' %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[1] | trim %}{%- endif %}
        {{- content }}
        {%- if message.tool_calls %}
            {{- '<TOOLCALL>[' }}
            {%- for call in message.tool_calls %}
                {{- '{"name": "' + call.function.name + '", "arguments": ' }}
                {{- call.function.arguments | tojson }}
                {{- '}' }}{{- ', ' if not loop.last }}
            {%- endfor %}
            {{- ']</TOOLCALL>' }}
        {%- endif %}
        {{- '\n<SPECIAL_12>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<SPECIAL_11>Assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think></think>' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
"""

FAMILIES: Mapping[str, str] = {
    "Qwen3-4B": QWEN3,
    "Qwen3-Coder-30B": QWEN3_CODER,
    "Llama-3.2-3B": LLAMA3,
    "Hermes-3": HERMES,
    "Mistral-7B-v0.3": MISTRAL,
    "DeepSeek-R1-Distill-Qwen-1.5B": DEEPSEEK_R1,
    "Nemotron-Nano-9B": NEMOTRON,
}
