package mirror_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// holds waits until a mirror holds exactly these kinds.
func (r *running) holds(kinds ...string) []mirror.Held {
	r.t.Helper()
	for {
		held := receive(r.t, fmt.Sprintf("held kinds %q, status %+v", kinds, r.Status()), r.held)
		if slices.EqualFunc(held, kinds, func(h mirror.Held, kind string) bool { return h.Kind == kind }) {
			return held
		}
	}
}

// deletePrefix simulates a wrong `etcdctl del --prefix`.
func deletePrefix(s *kvtest.Server, prefix string) {
	s.Delete(s.Prefix()+prefix, s.Prefix()+prefix[:len(prefix)-1]+"0")
}

// Another writer deletes all records of a kind, and the leader makes an edit: no proxy loses anything. The edit of
// another kind is served, the log and the status name the held kind, and it ends when the leader has written the
// records again. The deletion is not written to disk.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestDeletedKindIsHeld(t *testing.T) {
	s, e := etcd(t)
	leader := s.Term(e)
	disk := diskIn(t)
	first := leader.Commit(kv.Batch{Puts: append(services(t, 0, 13, 80), endpoints(t, "s000", "10.0.0.1"))})
	m := startWith(t, s.Connect(), disk)
	before := m.reach(first.Revision).New
	deletePrefix(s, "records/Service/")
	edit := leader.Commit(kv.Batch{Puts: []model.Record{endpoints(t, "s000", "10.0.0.2")}})
	if c := m.reach(edit.Revision); len(c.Edits) != 1 || c.Edits[0].Key().Kind != model.KindEndpoints || c.New.Len(model.KindService) != 13 {
		t.Fatalf("%d services after %v", c.New.Len(model.KindService), c.Edits)
	}
	if held := m.holds("Service"); held[0].Said != 13 || held[0].Stored != 0 {
		t.Fatalf("held %+v", held)
	}
	if err := m.Ready(); err != nil {
		t.Errorf("a replica that has good records: %v", err)
	}
	// Further edits, also of this kind: held records wait, and all others are applied.
	more := leader.Commit(kv.Batch{Puts: []model.Record{service(t, "s001", 81), service(t, "new", 80), endpoints(t, "s000", "10.0.0.3")}})
	if c := m.reach(more.Revision); len(c.Edits) != 1 || c.New.Len(model.KindService) != 13 {
		t.Fatalf("while it is held: %v", c.Edits)
	}
	eventually(t, "the snapshot on disk", func() bool {
		revision, saved, err := mirror.ReadDisk(disk.Path)
		return err == nil && revision == more.Revision && saved.Len(model.KindService) == 13
	})
	mended := leader.Commit(kv.Batch{Puts: append(services(t, 0, 1, 80), services(t, 2, 13, 80)...)})
	c := m.reach(mended.Revision)
	if len(c.Edits) != 2 || c.New.Len(model.KindService) != 14 || pointer(t, c.New, service(t, "s005", 0).Meta().Key) != pointer(t, before, service(t, "s005", 0).Meta().Key) {
		t.Fatalf("%d services after %v", c.New.Len(model.KindService), c.Edits)
	}
	m.holds()
	if n := len(m.Status().Held); n != 0 {
		t.Errorf("%d kinds are held", n)
	}
}

// The same for values that were changed and records that were added; without a leader nothing is published at all.
func TestChangedKindIsHeld(t *testing.T) {
	good, err := model.Encode(service(t, "s003", 90))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(s *kvtest.Server){
		"a value that is another's": func(s *kvtest.Server) { s.Put("records/Service///shop/s001", string(good)) },
		"a value that is garbage":   func(s *kvtest.Server) { s.Put("records/Service///shop/s001", "\xff") },
		"one more":                  func(s *kvtest.Server) { s.Put("records/Service///shop/x", string(good)) },
		"two that were exchanged": func(s *kvtest.Server) {
			one, _ := model.Encode(service(t, "s001", 81))
			two, _ := model.Encode(service(t, "s002", 82))
			s.Put("records/Service///shop/s001", string(two))
			s.Put("records/Service///shop/s002", string(one))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := etcd(t)
			leader := s.Term(e)
			first := leader.Commit(kv.Batch{Puts: []model.Record{service(t, "s001", 81), service(t, "s002", 82), endpoints(t, "s001")}})
			m := start(t, s.Connect())
			before := m.reach(first.Revision).New
			change(s)
			second := leader.Commit(kv.Batch{Puts: []model.Record{endpoints(t, "s001", "10.0.0.1")}})
			if c := m.reach(second.Revision); len(c.Edits) != 1 {
				t.Fatalf("edits %v", c.Edits)
			}
			m.holds("Service")
			if p := m.Status().Problems; len(p) != 0 {
				t.Errorf("problems %v", p)
			}
			for r := range before.All(model.KindService) {
				if pointer(t, m.Current(), r.Meta().Key) != r {
					t.Errorf("%v is another", r.Meta().Key)
				}
			}
			// The next leader compares everything.
			mended := s.MustCommit(kv.Batch{Epoch: s.Elect("b"), Puts: []model.Record{service(t, "s001", 81), service(t, "s002", 82)}, Deletes: keys(service(t, "x", 0))})
			if c := m.reach(mended); len(c.Edits) != 0 || c.New.Len(model.KindService) != 2 {
				t.Fatalf("edits %v", c.Edits)
			}
			m.holds()
		})
	}
}

// A replica that starts, and lists damaged records: without a good state of the kind it is not ready, and names the
// kind; with a snapshot on disk it serves that. If etcd still has the head's revision, it starts with that.
func TestStartOverDamagedStore(t *testing.T) {
	s, e := etcd(t)
	leader := s.Term(e)
	first := leader.Commit(kv.Batch{Puts: append(services(t, 0, 5, 80), endpoints(t, "s000", "10.0.0.1"))})
	disk := diskIn(t)
	saved(t, s, disk, first.Revision)
	deletePrefix(s, "records/Service/")
	if c := start(t, s.Connect()).reach(first.Revision); c.New.Len(model.KindService) != 5 {
		t.Fatalf("%d services, and etcd has them", c.New.Len(model.KindService))
	}
	second := leader.Commit(kv.Batch{Puts: []model.Record{endpoints(t, "s000", "10.0.0.2")}})

	none := start(t, s.Connect())
	none.holds("Service")
	if err := none.Ready(); none.Current() != nil || err == nil || !strings.Contains(err.Error(), "records/Service: the 0 stored records are not the 5 that the leader wrote") {
		t.Fatalf("ready: %v", err)
	}
	some := startWith(t, s.Connect(), disk)
	if c := some.reach(second.Revision); c.New.Len(model.KindService) != 5 {
		t.Fatalf("%d services from disk", c.New.Len(model.KindService))
	}
	if err := some.Ready(); err != nil {
		t.Fatalf("ready: %v", err)
	}
	mended := leader.Commit(kv.Batch{Puts: services(t, 0, 5, 80)})
	wantSame(t, "after the repair", none.reach(mended.Revision).New, some.reach(mended.Revision).New)
	none.holds()
	some.holds()
}

// A leader that encodes records in another way (of an older or newer build) does not freeze any kind: the stored bytes
// count. A head without contents, or with an unknown algorithm, does not either; the status then reports that nothing
// is compared.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestOtherBuildsFreezeNothing(t *testing.T) {
	other := func(r model.Record) string {
		raw, err := model.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw) + "\x08\x01" // the schema once more
	}
	if model.HashOf([]byte(other(service(t, "a", 80)))) == service(t, "a", 80).Meta().Hash {
		t.Fatal("it is encoded alike")
	}
	for name, said := range map[string]*model.ContentsValue{"encoded otherwise": nil, "nothing said": {}, "unknown algorithm": {Algorithm: 7}} {
		t.Run(name, func(t *testing.T) {
			s, e := etcd(t)
			first := s.MustCommit(kv.Batch{Epoch: e, Puts: append(services(t, 0, 3, 80), endpoints(t, "s000", "10.0.0.1"))})
			runs := start(t, s.Connect())
			runs.reach(first)
			for port := range uint32(3) {
				for _, r := range services(t, 0, 4, 81+port) {
					s.Put("records/"+r.Meta().Key.Path(), other(r))
				}
				now := s.MustCommit(kv.Batch{Epoch: e, Puts: []model.Record{endpoints(t, "s000", fmt.Sprintf("10.0.1.%d", port))}})
				if said != nil {
					now = s.WriteHead(said)
				}
				if c := runs.reach(now); c.New.Len(model.KindService) != 4 || pointer(t, c.New, service(t, "s003", 0).Meta().Key).(*model.Service).Spec.Ports[0].Number != 81+port {
					t.Fatalf("%d services after %v", c.New.Len(model.KindService), c.Edits)
				}
			}
			runs.pause()
			eventually(t, "the status", func() bool { return (runs.Status().Unchecked != "") == (said != nil) })
			if said.GetAlgorithm() == 7 && !strings.Contains(runs.Status().Unchecked, "algorithm 7") {
				t.Errorf("unchecked: %s", runs.Status().Unchecked)
			}
			again := start(t, s.Connect())
			wantSame(t, "a replica that starts", again.reach(runs.Current().Revision()).New, runs.Current())
			if len(runs.held)+len(again.held) != 0 {
				t.Error("kinds were held")
			}
		})
	}
}

// Kinds that a build does not know are compared too, and make no replica unready.
func TestUnknownKindThatDiffers(t *testing.T) {
	s, e := etcd(t)
	s.Put("records/Novel///shop/x", envelope(t, model.Schema, true))
	leader := s.Term(e)
	first := leader.Commit(kv.Batch{Puts: services(t, 0, 2, 80)})
	runs := start(t, s.Connect())
	runs.reach(first.Revision)
	s.Delete(s.Prefix()+"records/Novel///shop/x", "")
	second := leader.Commit(kv.Batch{Puts: services(t, 0, 1, 81)})
	runs.holds("Novel")
	if got := joined(covered(runs.reach(second.Revision).New)); got != "shop" {
		t.Errorf("closed for %q: somebody took away what closes it", got)
	}
	s.Put("records/Newer///shop/x", envelope(t, model.Schema, true))
	third := leader.Commit(kv.Batch{Puts: services(t, 0, 1, 82)})
	starts := start(t, s.Connect())
	starts.holds("Newer", "Novel")
	if err := starts.Ready(); err != nil || starts.reach(third.Revision).New.Len(model.KindService) != 2 {
		t.Errorf("ready: %v", err)
	}
	if got := joined(covered(starts.Current())); got != "shop" {
		t.Errorf("closed for %q: what cannot be understood may be what closes it", got)
	}
}
