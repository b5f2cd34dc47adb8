package changes

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// A problem is logged once when it appears and once when it ends, even if there are very many.
func TestProblemsAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := &ProblemLog{Named: object.ID.String, Log: slog.New(slog.NewTextHandler(&out, nil))}
	now := time.Unix(1e6, 0)
	step := func(problems ...object.Problem) string {
		defer out.Reset()
		now = now.Add(time.Second)
		l.Step(now, problems)
		return out.String()
	}
	bad := object.Problem{ID: object.ID{Kind: "VirtualService", Namespace: "shop", Name: "web"}, Location: "web.yaml", Field: "spec.hosts", Message: "is empty"}
	if got := step(bad); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="problem with the configuration" object="VirtualService shop/web" field=spec.hosts location=web.yaml problem="is empty"`) {
		t.Errorf("it appears: %s", got)
	}
	if got := step(bad); got != "" {
		t.Errorf("it stays: %s", got)
	}
	if got := step(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") || !strings.Contains(got, "is over") || !strings.Contains(got, "shop/web") {
		t.Errorf("it is over: %s", got)
	}
	lines := 0
	for i := range 100 {
		var many []object.Problem
		for j := range 500 {
			many = append(many, object.Problem{Message: fmt.Sprint(i, j)})
		}
		lines += strings.Count(step(many...), "\n")
	}
	if lines > problemBurst+100 {
		t.Errorf("%d lines in 100 s", lines)
	}
	step()
	for range problemBurst {
		if got := step(); strings.Contains(got, "/debug/problems lists") {
			return
		}
	}
	t.Error("it is not said that more happened than was logged")
}
