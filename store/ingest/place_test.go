package ingest

import (
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A leader without any work still writes a head of its own term, above the stored one and above all that this process
// has read: after a restore of etcd, replicas accept only such a head. If the same leader compares again, the term
// stays.
func TestEachTermHasAHead(t *testing.T) {
	s := kvtest.Start(t)
	lead(t, s, 1, put(t, svc)).stop()
	first := load(t, s).Head.Place
	if !first.Known() || first.Seq == 0 {
		t.Fatalf("the first head is at %v", first)
	}
	for name, seen := range map[string]kv.Place{
		"nothing":                      {},
		"more than is stored":          {Chain: first.Chain, Term: first.Term + 1e12, Seq: 50},
		"more than is stored, by less": {Chain: first.Chain, Term: first.Term, Seq: first.Seq + 50},
	} {
		t.Run(name, func(t *testing.T) {
			l := &leading{T: t, Server: s, log: &lines{}, seen: seen}
			was := load(t, s)
			l.run(put(t, svc))
			l.settles("its head", func(state *kv.State) bool {
				return was.Head.Place.Before(state.Head.Place) && (seen == kv.Place{} || seen.Before(state.Head.Place))
			})
			if now := load(t, s); now.Values[0].Revision != was.Values[0].Revision || now.Head.Place.Chain != first.Chain {
				t.Errorf("%+v after %+v", now, was)
			}
			l.stop()
		})
	}
}
