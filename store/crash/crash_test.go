package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type line struct{ Level, Msg, Error, Place, Stack, Name string }

func lines(t *testing.T, out *bytes.Buffer) (all []line) {
	t.Helper()
	for text := range strings.Lines(out.String()) {
		var one line
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// A call that panics ends with Internal without details for its client; the log has the stack once for each place.
func TestCallsThatPanic(t *testing.T) {
	var out bytes.Buffer
	l := New(slog.New(slog.NewJSONHandler(&out, nil)))
	var table map[string]int
	first := func(context.Context, any) (any, error) { table["x"] = 1; return nil, nil }
	second := func(any, grpc.ServerStream) error { panic("hidden " + strings.Repeat("x", 2*maxText)) }
	for range 3 {
		if _, err := l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/one"}, first); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "map") {
			t.Fatal(err)
		}
		if err := l.Stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/two"}, second); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hidden") {
			t.Fatal(err)
		}
	}
	stacks := map[string]int{}
	for _, one := range lines(t, &out) {
		if !strings.Contains(one.Place, "TestCallsThatPanic") || len(one.Error) > maxText {
			t.Errorf("%+v", one)
		}
		if one.Stack != "" {
			stacks[one.Name]++
			if one.Level != "ERROR" || !strings.Contains(one.Stack, "crash_test.go") {
				t.Errorf("%+v", one)
			}
		}
	}
	if stacks["/one"] != 1 || stacks["/two"] != 1 {
		t.Errorf("stacks %v, want one for each place\n%s", stacks, out.String())
	}
}

// Calls without a panic pass through.
func TestCallsThatDoNot(t *testing.T) {
	l, failed := New(slog.New(slog.DiscardHandler)), errors.New("failed")
	answer, err := l.Unary(t.Context(), "question", &grpc.UnaryServerInfo{}, func(_ context.Context, q any) (any, error) { return fmt.Sprint(q, "?"), failed })
	if answer != "question?" || !errors.Is(err, failed) {
		t.Errorf("%v, %v", answer, err)
	}
	if err := l.Stream(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}
