package ingest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.b.String(), "\n") {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// leading is a leader on a real etcd.
type leading struct {
	*testing.T
	*kvtest.Server
	loop *Loop
	log  *lines
	seen kv.Place // by the process's mirror
	stop func()
}

// lead begins a term with these objects, and waits until so many records are stored.
func lead(t *testing.T, s *kvtest.Server, records int, events ...object.Event) *leading {
	t.Helper()
	l := &leading{T: t, Server: s, log: &lines{}}
	l.run(events...)
	l.settles("the first batch", func(state *kv.State) bool { return len(state.Values) == records })
	return l
}

// run begins a term.
func (l *leading) run(events ...object.Event) {
	l.Helper()
	l.loop = New(Config{Store: l.Store, Seen: func() kv.Place { return l.seen }, Retry: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(l.log, nil))})
	ctx, cancel := context.WithCancel(l.Context())
	done := make(chan error, 1)
	go func() { done <- l.loop.Run(ctx) }()
	l.stop = sync.OnceFunc(func() { cancel(); <-done })
	l.Cleanup(l.stop)
	l.loop.Emit(append(events, synced))
	l.loop.Gained(l.Elect("leader"))
}

// settles waits until the stored records agree with the head, and then calls more.
func (l *leading) settles(what string, more func(*kv.State) bool) {
	l.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		stat, err := l.Stat(l.Context())
		if err != nil {
			l.Fatal(err)
		}
		state, err := l.Server.Load(l.Context(), stat.Revision) // without considering earlier records
		if err == nil && stat.Head.Complete && stat.Head.Contents.Known() && len(state.Contents.Differ(stat.Head.Contents)) == 0 && more(state) {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("%s: stored %+v, %v; differs %v, problems %v", what, state, err, state.Contents.Differ(stat.Head.Contents), l.loop.Problems())
		}
	}
}

func crowd(t *testing.T) (events []object.Event) {
	events = append(events, put(t, svc))
	for i := range 200 {
		events = append(events, put(t, vs(fmt.Sprintf("v%03d", i), "1s")))
	}
	return events
}

// Records that others remove, change or add without the leader are restored or removed, although no source changed:
// even more than half of a kind. The log has one line about it.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestChangesOfOthersAreMended(t *testing.T) {
	s := kvtest.Start(t)
	l := lead(t, s, 201, crowd(t)...)
	was := l.now()
	same := func(state *kv.State) bool { return len(was.Differ(state.Contents)) == 0 }
	records := s.Prefix() + "records/"
	s.Delete(records+"VirtualService/", records+"VirtualService0")
	l.settles("a prefix that was deleted", same)
	if got := l.log.with("changed stored records"); len(got) != 1 || !strings.Contains(got[0], "records=200 kinds=VirtualService names=\"VirtualService///shop/v000 VirtualService///shop/v001 ") {
		t.Errorf("log: %q", got)
	}
	s.Put("records/Service///shop/web", "not what the leader wrote")
	l.settles("a value that was changed", same)
	for i := range 300 {
		s.Put(fmt.Sprintf("records/Service///other/x%d", i), "nobody's")
	}
	s.Put("records/Novel///shop/x", "of a kind that nobody knows")
	s.Put("records/nonsense", "at a path that is none")
	l.settles("records that were added", same)
	l.loop.Emit([]object.Event{put(t, vs("late", "1s"))})
	l.settles("the next change", func(state *kv.State) bool { return len(state.Values) == 202 })
	if held := l.loop.state.removals.book.Objects(); len(held) != 0 {
		t.Errorf("held: %v", held)
	}
}

// now returns the stored contents.
func (l *leading) now() kv.Contents {
	l.Helper()
	stat, err := l.Stat(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	state, err := l.Server.Load(l.Context(), stat.Revision)
	if err != nil {
		l.Fatal(err)
	}
	return state.Contents
}

// Stored records without an object that determines them are restored byte by byte: those of an unreadable object, and
// those of a kind that this build does not know.
func TestStandingRecordsAreMended(t *testing.T) {
	s := kvtest.Start(t)
	first := lead(t, s, 2, put(t, svc), put(t, vs("a", "1s")))
	first.stop()
	s.Put("records/Novel///shop/x", "of a newer build")
	s.MustCommit(kv.Batch{Epoch: s.Elect("newer")})
	// This leader has never seen the good version of a.
	l := lead(t, s, 3, put(t, svc), put(t, vs("a", "nonsense")))
	was := l.now()
	same := func(state *kv.State) bool { return len(was.Differ(state.Contents)) == 0 }
	s.Delete(s.Prefix()+"records/", s.Prefix()+"records0")
	l.settles("everything was deleted", same)
	s.Put("records/Novel///shop/x", "changed")
	s.Put("records/VirtualService///shop/a", "changed")
	s.Put("records/VirtualService///shop/a", "and again")
	l.settles("two that stand were changed", same)
	if p := l.loop.Problems(); !slices.ContainsFunc(p, func(p object.Problem) bool { return p.ID.Name == "a" }) {
		t.Errorf("problems %v", p)
	}
}

// A leader whose term begins with a damaged store restores the records of the previous leader, even more than the
// shrink guard permits to remove. If etcd has compacted them, it compares everything with the stored records, and
// reports the differences.
func TestTermOverDamagedStore(t *testing.T) {
	for name, forgotten := range map[string]bool{"etcd has it": false, "etcd has forgotten it": true} {
		t.Run(name, func(t *testing.T) {
			s := kvtest.Start(t)
			events := crowd(t)
			l := lead(t, s, 201, events...)
			was := l.now()
			l.stop()
			records := s.Prefix() + "records/"
			s.Delete(records+"VirtualService/", records+"VirtualService0")
			if !forgotten {
				for i := range 5 {
					s.Put(fmt.Sprintf("records/Service///other/x%d", i), "nobody's")
				}
			} else if stat, err := s.Stat(t.Context()); err != nil || s.Compact(t.Context(), stat.Revision) != nil {
				t.Fatal(err)
			}
			l = lead(t, s, 201, events...)
			l.settles("the next term", func(state *kv.State) bool { return len(was.Differ(state.Contents)) == 0 })
			if n := len(l.log.with("differ from those that the last leader wrote: another writer changed them\" kind=VirtualService said=200 records=0")); (n == 1) != forgotten {
				t.Errorf("log:\n%s", l.log.b.String())
			}
		})
	}
}

// For a kind that this build does not know, the head keeps the statement of the previous leader, whatever is stored:
// replicas that know the kind check it.
func TestHeadOfUnknownKinds(t *testing.T) {
	s := kvtest.Start(t)
	s.Put("records/Novel///shop/x", "of a newer build")
	s.MustCommit(kv.Batch{Epoch: s.Elect("newer")})
	was := load(t, s).Said.Kind("Novel")
	s.Delete(s.Prefix()+"records/Novel///shop/x", "")
	if err := s.Compact(t.Context(), load(t, s).Store); err != nil {
		t.Fatal(err)
	}
	l := &leading{T: t, Server: s, log: &lines{}}
	l.run(put(t, svc))
	for deadline := time.Now().Add(time.Minute); len(load(t, s).Values) != 1; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no batch")
		}
	}
	if state := load(t, s); state.Said.Kind("Novel") != was || was.Count != 1 || !slices.Equal(state.Contents.Differ(state.Said), []string{"Novel"}) {
		t.Errorf("the head says %+v of Novel, want %+v; %v differ", state.Said.Kind("Novel"), was, state.Contents.Differ(state.Said))
	}
}

func load(t *testing.T, s *kvtest.Server) *kv.State {
	t.Helper()
	state, err := s.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// After a leader of an older build, whose head does not describe the records, or of a newer build with another
// algorithm, the head describes the stored records although no record changed. The next leader writes only the head.
func TestHeadOfAnotherBuild(t *testing.T) {
	for name, said := range map[string]*model.ContentsValue{"older": nil, "newer": {Algorithm: 9}} {
		t.Run(name, func(t *testing.T) {
			s := kvtest.Start(t)
			lead(t, s, 1, put(t, svc)).stop()
			s.WriteHead(said)
			l := lead(t, s, 1, put(t, svc))
			stat, err := s.Stat(t.Context())
			if err != nil || !stat.Head.Contents.Known() || stat.Head.Contents.Kind("Service").Count != 1 {
				t.Fatalf("%+v, %v", stat.Head, err)
			}
			l.stop()
			lead(t, s, 1, put(t, svc)).stop()
			again := load(t, s)
			if len(again.Contents.Differ(stat.Head.Contents)) > 0 || len(again.Values) != 1 || again.Values[0].Revision > stat.Head.Revision {
				t.Fatalf("a leader that found nothing to do wrote %+v", again)
			}
		})
	}
}

// After another writer's head, the leader compares everything, and writes its own.
func TestHeadOfSomebodyElse(t *testing.T) {
	s := kvtest.Start(t)
	l := lead(t, s, 2, put(t, svc), put(t, vs("a", "1s")))
	raw, err := proto.Marshal(&model.HeadValue{Schema: model.Schema, Epoch: 1, Complete: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Delete(s.Prefix()+"head", "")
	s.Delete(s.Prefix()+"records/", s.Prefix()+"records0")
	l.settles("everything was deleted, the head too", func(state *kv.State) bool { return len(state.Values) == 2 })
	s.Put("head", string(raw))
	l.settles("another head", func(state *kv.State) bool { return len(state.Values) == 2 })
}

// A value that is being encrypted again while others change it is not removed for the lack of a readable object.
func TestForeignChangeInFlight(t *testing.T) {
	d := newDesk(t)
	d.lead()
	key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "a"}
	d.s.Step(Objects{put(t, vs("a", "1s")), synced})
	load := d.s.Step(Loaded{Epoch: d.epoch, Have: map[model.Key]model.Hash{}, After: 1, Complete: true, Contents: kv.NewContents()})
	if len(load) != 1 {
		t.Fatal(load)
	}
	effects := d.s.Step(Objects{gone(put(t, vs("a", "1s")))})
	effects = append(effects, d.s.Step(Foreign{Epoch: d.epoch, Revision: 5, Values: []kv.Value{{Path: key.Path(), Raw: []byte("x")}}})...)
	if len(effects) != 0 {
		t.Fatalf("begun while a batch is under way: %v", effects)
	}
	effects = d.s.Step(Written{Epoch: d.epoch, After: 2, Contents: kv.NewContents()})
	if len(effects) != 1 || !slices.Equal(effects[0].(Write).Batch.Deletes, []model.Key{key}) {
		t.Fatalf("after the batch: %v", effects)
	}
	// Deleted by this leader while another writer puts it: it is deleted again.
	d.s.Step(Foreign{Epoch: d.epoch, Revision: 6, Values: []kv.Value{{Path: key.Path(), Raw: []byte("y")}}})
	effects = d.s.Step(Written{Epoch: d.epoch, After: 3, Contents: kv.NewContents()})
	if len(effects) != 1 || !slices.Equal(effects[0].(Write).Batch.Deletes, []model.Key{key}) {
		t.Fatalf("after the delete: %v", effects)
	}
	// Values of another term, and values that equal the wanted ones, have no effect.
	d.s.Step(Written{Epoch: d.epoch, After: 4, Contents: kv.NewContents()})
	for _, e := range []Event{Foreign{Epoch: kv.Epoch{Key: "other"}, Values: []kv.Value{{Path: key.Path(), Raw: []byte("z")}}},
		Foreign{Epoch: d.epoch, Values: []kv.Value{{Path: key.Path()}}}, Altered{kv.Epoch{Key: "other"}},
		Recalled{d.epoch, []kv.Value{{Path: key.Path(), Raw: []byte("z")}}}} {
		if effects := d.s.Step(e); len(effects) != 0 {
			t.Errorf("%+v: %v", e, effects)
		}
	}
}

// Records that others changed are restored with the next batch (within 10 s): at once, even if the pace of endpoints
// delays other batches, or with the next step of that pace if they are endpoints.
func TestRepairsWaitForNothing(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	d.s.Step(Objects{put(t, epSlice("web-1", "10.0.0.7", "none"))})
	if effects := d.s.Step(Written{Epoch: d.epoch, After: 3, Contents: kv.NewContents()}); len(effects) != 1 || effects[0] != (Wait{}) {
		t.Fatalf("after a batch of endpoints alone: %v", effects)
	}
	service := model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
	slice := model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "web-1"}
	foreign := func(keys ...model.Key) []Effect {
		var values []kv.Value
		for _, key := range keys {
			values = append(values, kv.Value{Path: key.Path()})
		}
		return d.s.Step(Foreign{Epoch: d.epoch, Revision: 9, Values: values})
	}
	if effects := foreign(slice); len(effects) != 0 {
		t.Errorf("endpoints alone do not keep their pace: %v", effects)
	}
	effects := foreign(service)
	if len(effects) != 1 || len(effects[0].(Write).Batch.Puts) != 2 {
		t.Fatalf("configuration that was deleted, and the endpoints before it: %v", effects)
	}
	d.s.Step(Written{Epoch: d.epoch, After: 4, Contents: kv.NewContents()})
	d.s.Step(Objects{put(t, epSlice("web-1", "10.0.0.8", "none"))})
	d.s.Step(Written{Epoch: d.epoch, After: 5, Contents: kv.NewContents()})
	foreign(slice)
	if effects := d.s.Step(Due{}); len(effects) != 1 || len(effects[0].(Write).Batch.Puts) != 1 {
		t.Errorf("endpoints with the next beat: %v", effects)
	}
}
