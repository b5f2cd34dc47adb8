package show

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// A step that fails counts as failed and does not stop the others. A program that has ended does.
func TestPlay(t *testing.T) {
	played := ""
	step := func(name string, err error) Step {
		return Step{Name: name, Run: func(context.Context) (string, error) { played += name; return "m", err }}
	}
	steps := []Step{step("a", nil), step("b", errors.New("does not hold")), step("c", nil)}
	rows := Play(t.Context(), io.Discard, steps, func() error { return nil })
	if played != "abc" || !Failed(rows) || Failed(rows[:1]) || rows[1].Measured != "m" {
		t.Errorf("played %q, rows %+v", played, rows)
	}
	var out strings.Builder
	if Summary(&out, rows); !strings.HasSuffix(out.String(), "2 of 3 steps held\n") {
		t.Errorf("summary:\n%s", out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	played, steps[1].Run = "", func(context.Context) (string, error) { played += "b"; cancel(); return "m", nil }
	if rows = Play(ctx, io.Discard, steps, func() error { return nil }); played != "ab" || Failed(rows) {
		t.Errorf("after the end of the context: played %q, rows %+v", played, rows)
	}
	played = ""
	if rows = Play(t.Context(), io.Discard, steps, func() error { return errors.New("ended") }); played != "a" || !Failed(rows) {
		t.Errorf("after a program ended: played %q, rows %+v", played, rows)
	}
}
