import gradio as gr

import polydraft

with gr.Blocks(analytics_enabled=False) as demo:
    editor = polydraft.DraftEditor(placeholder="Write here", options={"rule": "min-p"})
    with gr.Row():
        editor.bind("k", gr.Slider(1, 9, 3, step=1, label="Drafts"))
        editor.bind("length", gr.Slider(1, 30, 10, step=1, label="Tokens"))
        editor.bind("min-p", gr.Slider(0, 1, 0.1, step=0.05, label="min-p"))
    words, taken = gr.Number(label="Words"), gr.Textbox(label="Taken last")

    editor.change(lambda text: len(text.split()), editor, words)

    @editor.take(outputs=taken)
    def show(event: gr.EventData) -> str:
        return event.text


polydraft.attach(demo)

if __name__ == "__main__":
    demo.launch()
