package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// A command whose answer takes longer than a second says so on a terminal, and leaves no line and no colour behind.
// Promise: commands.md#terminals
func TestProgressOnATerminal(t *testing.T) {
	terminal, stderr, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	said := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-said
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	var shown bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 1<<10)
		for first := true; ; {
			n, err := terminal.Read(buffer)
			if shown.Write(buffer[:n]); first && strings.Contains(shown.String(), " requests are answered, 1s") {
				close(said)
				first = false
			}
			if err != nil {
				return
			}
		}
	}()
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"patches", "--server", server.Listener.Addr().String()})
	cmd.SetOut(&out)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
	stderr.Close()
	<-read
	text := shown.String()
	if strings.Contains(out.String(), "\x1b") || !strings.HasPrefix(out.String(), "OBJECT") {
		t.Errorf("stdout %q", out.String())
	}
	end := text[strings.LastIndex(text, "\x1b[K")+len("\x1b[K"):]
	if !strings.HasPrefix(end, "next: navarchctl problems ") || regexp.MustCompile("\x1b\\[[0-9;]*m").MatchString(text) {
		t.Errorf("stderr %q", text)
	}
}
