package status

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"navarch.io/navarch/store/problem"
)

// route is a VirtualService in its second generation, with this status.
func route(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetNamespace("shop")
	u.SetName("cart")
	u.SetUID("u")
	u.SetGeneration(2)
	if status != "" {
		var decoded map[string]any
		if err := json.Unmarshal([]byte(status), &decoded); err != nil {
			t.Fatal(err)
		}
		u.Object["status"] = decoded
	}
	return u
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func report(status string, messages ...Message) Report {
	return Report{UID: "u", Generation: 2, Messages: messages, Delivered: Delivered{Status: status, Reason: "R", Since: begin}}
}

// A report is merged into a status, as JSON; empty: nothing is written. Entries of others keep their content and order.
func TestReportIsMerged(t *testing.T) {
	invalid, unused := Message{Code: problem.Invalid, Severity: problem.Error}, Message{Code: problem.NoEffect, Severity: problem.Warning}
	const theirs = `{"type":"Reconciled","status":"True","observedGeneration":"2","lastProbeTime":"2020-01-01T00:00:00Z","x":1.5}`
	const theirMessage = `{"type":{"code":"IST0101","name":"ReferencedResourceNotFound"},"level":"ERROR","documentationUrl":"https://istio.io/x"}`
	ours := func(status, since, generation string) string {
		return `{"type":"navarch.io/Delivered","status":"` + status + `","reason":"R","lastTransitionTime":"` + since + `","observedGeneration":` + generation + `}`
	}
	const t0, t1 = "2025-01-01T00:00:00Z", "2026-01-02T03:04:05Z"
	message := `{"type":{"code":"NAV0001","name":"Invalid"},"level":"ERROR"}`
	unreachable := Message{Analyzer: problem.VirtualServiceUnreachableRule, Severity: problem.Warning}
	const istios = `{"type":{"code":"IST0130","name":"VirtualServiceUnreachableRule"},"level":"WARNING","documentationUrl":"https://istio.io/docs/reference/config/analysis/ist0130/?ref=navarch"}`
	warning := `{"type":{"code":"NAV0006","name":"NoEffect"},"level":"WARNING"}`
	only := func(r Report, only Only) Report { r.Delivered.Only = only; return r }
	for _, c := range []struct {
		name, there string
		report      Report
		want        string
	}{
		{"nothing is there", ``, report("True"), `{"conditions":[` + ours("True", t1, "2") + `],"observedGeneration":2}`},
		{"it is there", `{"conditions":[` + ours("True", t0, "2") + `]}`, report("True"), ``},
		{"it is there, its generation as text", `{"conditions":[` + ours("True", t0, `"2"`) + `]}`, report("True"), ``},
		{"of another generation", `{"conditions":[` + ours("True", t0, "1") + `]}`, report("True"), `{"conditions":[` + ours("True", t0, "2") + `],"observedGeneration":2}`},
		{"another status", `{"conditions":[` + ours("False", t0, "2") + `]}`, report("True"), `{"conditions":[` + ours("True", t1, "2") + `],"observedGeneration":2}`},
		{"among others", `{"addresses":[{"value":"240.240.0.1"}],"conditions":[` + theirs + `,` + ours("False", t0, "2") + `,{"type":"Last"}],"validationMessages":[` + theirMessage + `]}`, report("True", invalid),
			`{"addresses":[{"value":"240.240.0.1"}],"conditions":[` + theirs + `,` + ours("True", t1, "2") + `,{"type":"Last"}],"validationMessages":[` + theirMessage + `,` + message + `],"observedGeneration":2}`},
		{"messages come", `{"conditions":[` + ours("True", t0, "2") + `]}`, report("True", invalid, unused), `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + message + `,` + warning + `],"observedGeneration":2}`},
		{"Istio's code comes", `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + theirMessage + `]}`, report("True", unreachable), `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + theirMessage + `,` + istios + `],"observedGeneration":2}`},
		{"a code of ours with a number", `{"conditions":[` + ours("True", t0, "2") + `]}`, report("True", Message{Analyzer: problem.RouteWithoutEndpoints, Severity: problem.Warning}), `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[{"type":{"code":"NAV1001","name":"RouteWithoutEndpoints"},"level":"WARNING"}],"observedGeneration":2}`},
		{"Istio's code stays", `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + istios + `]}`, report("True", unreachable), ``},
		{"Istio's code goes, and theirs stays", `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + istios + `,` + theirMessage + `]}`, report("True"), `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + theirMessage + `],"observedGeneration":2}`},
		{"messages stay", `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + message + `,` + theirMessage + `,` + warning + `]}`, report("True", invalid, unused), ``},
		{"messages go", `{"conditions":[` + ours("True", t0, "2") + `],"validationMessages":[` + warning + `]}`, report("True"), `{"conditions":[` + ours("True", t0, "2") + `],"observedGeneration":2}`},
		{"only where nothing is said, and something is", `{"conditions":[` + ours("True", t0, "2") + `]}`, only(report("Unknown"), WhereUnsaid), ``},
		{"only where nothing is said of this generation", `{"conditions":[` + ours("True", t0, "1") + `]}`, only(report("Unknown"), WhereUnsaid), `{"conditions":[` + ours("Unknown", t1, "2") + `],"observedGeneration":2}`},
		{"only where it is, and it is not", `{"conditions":[` + theirs + `]}`, only(report("True"), WherePresent), ``},
		{"only where it is", `{"conditions":[` + ours("False", t0, "2") + `]}`, only(report("True"), WherePresent), `{"conditions":[` + ours("True", t1, "2") + `],"observedGeneration":2}`},
		{"nowhere", `{"conditions":[` + ours("False", t0, "2") + `]}`, only(report("True"), Nowhere), ``},
		{"no list", `{"conditions":"x","validationMessages":[]}`, report("True"), ``},
		{"no object", `{"conditions":[7]}`, report("True"), `{"conditions":[7,` + ours("True", t1, "2") + `],"observedGeneration":2}`},
	} {
		before := route(t, c.there)
		there := before.DeepCopy()
		got := c.report.Desired("shop").Draw(there, 1)
		if !reflect.DeepEqual(there, before) {
			t.Errorf("%s: what was read has changed: %v", c.name, there)
		}
		switch {
		case got == nil && c.want == "":
		case got == nil || c.want == "":
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		default:
			if want := route(t, c.want); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got\n%v, want\n%v", c.name, got.Object["status"], want.Object["status"])
			}
			if again := c.report.Desired("shop").Draw(got, 1); again != nil {
				t.Errorf("%s: what was written is written again: %v", c.name, again)
			}
		}
	}
	other := route(t, "")
	other.SetUID(types.UID("v"))
	if got := report("True").Desired("shop").Draw(other, 1); got != nil {
		t.Errorf("an object that was made again gets %v", got)
	}
	if got := report("True").Desired("shop").Draw(nil, 1); got != nil {
		t.Errorf("an object that is gone gets %v", got)
	}
}

// Each code of store/problem is one code of messages, and no other's.
func TestMessageCodes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../problem/problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	ast.Inspect(file, func(n ast.Node) bool {
		constant, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if kind, named := constant.Type.(*ast.Ident); named && kind.Name == "Code" {
			all++
			if _, known := codes[problem.Code(constant.Names[0].Name)]; !known {
				t.Errorf("%s has no code of messages", constant.Names[0].Name)
			}
		}
		return true
	})
	if all == 0 || all != len(codes) {
		t.Errorf("%d codes of messages for %d codes", len(codes), all)
	}
	seen := map[string]problem.Code{unknownCode: ""}
	for code, name := range codes {
		if other, known := seen[name]; known || !strings.HasPrefix(name, codePrefix) || len(name) != len(unknownCode) {
			t.Errorf("%s is %s, as %q", code, name, other)
		}
		seen[name] = code
	}
}

var cart = Key{"shop", "cart"}

// condition returns one condition of the existing object, as text; empty if it is absent.
func condition(t *testing.T, c *played[unstructured.Unstructured, *unstructured.Unstructured], name string) string {
	t.Helper()
	f, _ := c.Get(t.Context(), cart)
	list, _, _ := unstructured.NestedSlice(f.Object.Object, "status", "conditions")
	for _, one := range list {
		if one := one.(map[string]any); one["type"] == name {
			return fmt.Sprint(one["status"], " ", one["reason"])
		}
	}
	return ""
}

// A second controller writes its own condition 1,000 times while ours changes all the time, each after a read: no write
// is lost, and neither counts as a conflicting writer.
func TestSecondControllerLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := play[unstructured.Unstructured]()
		c.put(cart, "kubectl", route(t, ""))
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		pass(w.Deadline)
		conflicts := 0
		for n := range 1000 {
			r := report([]string{"True", "False"}[n%2])
			r.Delivered.Reason = fmt.Sprint("R", n)
			w.Want(map[Key]Desired[unstructured.Unstructured]{cart: r.Desired("shop")})
			for {
				f, _ := c.Get(t.Context(), cart)
				o := f.Object.DeepCopy()
				conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				mine := -1
				for i := range conditions {
					if conditions[i].(map[string]any)["type"] == "theirs" {
						mine = i
					}
				}
				switch {
				case mine >= 0 && conditions[mine].(map[string]any)["reason"] != fmt.Sprint("T", n-1):
					t.Fatalf("%d: it has lost its condition: %v", n, conditions)
				case mine < 0 && n > 0:
					t.Fatalf("%d: its condition is not there: %v", n, conditions)
				case mine < 0:
					conditions, mine = append(conditions, nil), len(conditions)
				}
				conditions[mine] = map[string]any{"type": "theirs", "status": "True", "reason": fmt.Sprint("T", n)}
				_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
				time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond) // ours may come between
				if _, err := c.swap(cart, "theirs", o); err == nil {
					break
				}
				conflicts++
			}
		}
		pass(time.Minute)
		if ours, theirs := condition(t, c, DeliveredType), condition(t, c, "theirs"); ours != "False R999" || theirs != "True T999" {
			t.Errorf("at the end ours is %q, theirs %q", ours, theirs)
		}
		if p := w.Problems(); len(p) > 0 || conflicts == 0 {
			t.Errorf("%d conflicts, problems %v", conflicts, p)
		}
	})
}

// Something else is wanted while a write is on its way, again and again: writing that next is no putting back, and
// waits for nothing.
func TestWantedMeanwhile(t *testing.T) {
	c, q, now := play[unstructured.Unstructured](), newQueue[unstructured.Unstructured](1), begin
	q.replace(map[Key]Found[unstructured.Unstructured]{cart: c.put(cart, "kubectl", route(t, ""))})
	want := func(n int) {
		r := report("True")
		r.Delivered.Reason = fmt.Sprint("R", n)
		q.wants(map[Key]Desired[unstructured.Unstructured]{cart: r.Desired("shop")})
	}
	write := func(meanwhile func()) {
		t.Helper()
		_, object, wait := q.next(now)
		if object == nil {
			t.Fatalf("nothing is written for %v: %v", wait, q.problems(now, 1))
		}
		meanwhile()
		found, err := c.swap(cart, "navarchd", object)
		if err != nil {
			t.Fatal(err)
		}
		if by := q.wrote(cart, found, now); by != "" {
			t.Fatalf("%s counts as writing against this process", by)
		}
	}
	for n := range 10 {
		want(2 * n)
		write(func() { want(2*n + 1) })
		write(func() {})
	}
}

// A leader is stopped (SIGSTOP) between encoding an object and sending it, and continues at any time after its
// successor has begun, 1,000 times: 30 s later the successor's state is there. Until then the status has changed at
// most three times: by the late write, by the successor's, and, if the late one arrived after the comparison, back
// again.
func TestStoppedLeaderConverges(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) { stopLeader(t, rand.New(rand.NewPCG(seed, 5))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func stopLeader(t *testing.T, random *rand.Rand) {
	c := play[unstructured.Unstructured]()
	c.put(cart, "kubectl", route(t, ""))
	wants := func(w *Writer[unstructured.Unstructured], status string) {
		w.Want(map[Key]Desired[unstructured.Unstructured]{cart: report(status).Desired("shop")})
	}
	old, stopOld := leads(t, c.api(), 1, nil)
	wants(old, "True")
	pass(old.Deadline + time.Second)
	resumed := make(chan struct{})
	c.play(func() { c.before = func(Key) { <-resumed } })
	wants(old, "Unknown")
	synctest.Wait() // it has encoded that
	c.play(func() { c.before = nil })
	version := c.changes()
	w, stop := leads(t, c.api(), 2, nil)
	defer stop()
	says := []string{"False", "True", "Unknown"}[random.IntN(3)]
	wants(w, says)
	began := time.Now()
	pass(time.Duration(random.IntN(20_000)) * time.Millisecond)
	old.Want(nil) // its term has ended, which it notices after its next write
	close(resumed)
	stopOld()
	pass(30*time.Second - time.Since(began))
	if got := condition(t, c, DeliveredType); got != says+" R" {
		t.Errorf("after 30 s there is %q, the new leader says %s", got, says)
	}
	if n := c.changes() - version; n > 3 {
		t.Errorf("the status has changed %d times", n)
	}
	settled := c.changes()
	pass(10 * time.Minute)
	if n := c.changes() - settled; n != 0 || len(w.Problems()) > 0 {
		t.Errorf("it goes on: %d changes, %v", n, w.Problems())
	}
}

// An object has hundreds of conditions and messages of other writers, one megabyte: the written status is the same
// after it is read again, has all of theirs unchanged and in order, and is larger only by our entries, for any age and
// number of our writes.
// Promise: security-tenants.md#statuses-of-objects
func TestReportInLargeStatus(t *testing.T) {
	var conditions, messages []any
	for i := range 700 {
		conditions = append(conditions, map[string]any{"type": fmt.Sprintf("example.com/c%d", i), "status": "True", "message": strings.Repeat("x", 1000)})
		messages = append(messages, map[string]any{"type": map[string]any{"code": fmt.Sprintf("IST%04d", i), "name": strings.Repeat("y", 500)}, "level": "INFO"})
	}
	theirs := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions, "validationMessages": messages, "addresses": []any{"kept"}}}}
	theirs.SetUID("u")
	theirs.SetGeneration(2)
	size := func(u *unstructured.Unstructured) int {
		raw, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return len(raw)
	}
	at := theirs
	for i := range 5 {
		r := report([]string{"True", "False"}[i%2], Message{Code: problem.Invalid, Severity: problem.Error}, Message{Code: problem.NoEffect, Severity: problem.Warning})
		if i%2 == 0 {
			r.Messages = r.Messages[:1]
		}
		next := r.draw(at)
		if next == nil || r.draw(next) != nil {
			t.Fatalf("report %d: nothing is written, or again what was written", i)
		}
		if more := size(next) - size(theirs); more > 1000 {
			t.Errorf("report %d: %d bytes more than they wrote", i, more)
		}
		at = next
	}
	gone := report("True")
	gone.Delivered.Only = Nowhere
	at = gone.draw(at)
	status := at.Object["status"].(map[string]any)
	list := status["conditions"].([]any)
	if !reflect.DeepEqual(list[:700], conditions) || len(list) != 701 || !reflect.DeepEqual(status["validationMessages"], any(messages)) || !reflect.DeepEqual(status["addresses"], []any{"kept"}) {
		t.Errorf("what others wrote has changed: %d conditions, %d messages", len(list), len(status["validationMessages"].([]any)))
	}
}
