package changes

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
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

// The differences of two lists are the problems of only one of them, each once, for sorted lists and others. Equal
// problems are adjacent.
func TestDifferingProblems(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := func() (all []object.Problem) {
		for range r.IntN(8) {
			all = append(all, object.Problem{ID: object.ID{Name: fmt.Sprint(r.IntN(4))}, Severity: problem.Severity(fmt.Sprint(r.IntN(2)))})
		}
		return all
	}
	only := func(in, without []object.Problem) map[object.Problem]bool {
		out := map[object.Problem]bool{}
		for _, p := range in {
			out[p] = !slices.Contains(without, p)
		}
		maps.DeleteFunc(out, func(_ object.Problem, only bool) bool { return !only })
		return out
	}
	for range 20000 {
		before, now := list(), list()
		for _, list := range [][]object.Problem{before, now} {
			slices.SortFunc(list, func(a, b object.Problem) int {
				return cmp.Or(normal.CompareProblems(a, b), cmp.Compare(a.Severity, b.Severity))
			})
		}
		if r.IntN(2) == 0 {
			now = slices.Compact(now)
			r.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		}
		over, began := differing(before, now)
		for _, one := range []struct {
			got  []object.Problem
			want map[object.Problem]bool
		}{{over, only(before, now)}, {began, only(now, before)}} {
			got := map[object.Problem]bool{}
			for _, p := range one.got {
				got[p] = true
			}
			if len(got) != len(one.got) || !maps.Equal(got, one.want) {
				t.Fatalf("%v -> %v: %v, want %v", before, now, one.got, one.want)
			}
		}
	}
}
