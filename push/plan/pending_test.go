package plan

import (
	"testing"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Of several edits of a record the first old and the last new version count. Hosts that Endpoints had in between, which
// the fast path has planned, are kept, also if the record returns to its first version.
func TestPending(t *testing.T) {
	a, b, c := hosted(t, "a"), hosted(t, "b"), hosted(t, "c")
	var p Pending
	p.Add([]mirror.Edit{{Old: a, New: b}})
	p.Add([]mirror.Edit{{Old: b, New: c}})
	if got := p.Take(); len(got) != 2 || touches(got, "a") != 1 || touches(got, "b") != 1 || touches(got, "c") != 2 {
		t.Errorf("moved twice: %v", got)
	}
	p.Add([]mirror.Edit{{Old: a, New: b}})
	p.Add([]mirror.Edit{{Old: b, New: a}})
	if p.Len() != 1 {
		t.Errorf("%d wait, want the hosts in between", p.Len())
	}
	if got := p.Take(); len(got) != 1 || touches(got, "b") != 1 {
		t.Errorf("there and back: %v", got)
	}
	one, two := vsOf(t, "shop/v", "a", "a", ""), vsOf(t, "shop/v", "b", "a", "")
	p.Add([]mirror.Edit{{Old: one, New: two}})
	p.Add([]mirror.Edit{{Old: two, New: one}})
	if p.Len() != 0 || len(p.Take()) != 0 {
		t.Error("what was undone waits")
	}
}

func hosted(t *testing.T, host string) model.Record {
	t.Helper()
	return rec(t, model.KindEndpoints, "shop/x-1@1", "hosts: ["+host+"]\nports: [{name: http, number: 8080}]\nendpoints: [{address: 10.1.0.1}]\n")
}

// touches returns the number of edits whose old or new version names a host.
func touches(edits []mirror.Edit, host string) (n int) {
	for _, e := range edits {
		for _, r := range records(e) {
			if model.HostsOf(r)[0] == host {
				n++
			}
		}
	}
	return n
}
