package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/object"
)

// A bounded number of turns is in progress at once. A turn that does not end in time is ended, and its late end does
// not end another turn. A caller whose context has ended gets no turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2)
		take := func(ctx context.Context) <-chan func() {
			taken := make(chan func(), 1)
			go func() {
				if done, ok := turns.acquire(ctx); ok {
					taken <- done
				}
				close(taken)
			}()
			synctest.Wait()
			return taken
		}
		first, hung := <-take(t.Context()), <-take(t.Context())
		gone, leave := context.WithCancel(t.Context())
		third, fourth := take(gone), take(t.Context())
		if len(third)+len(fourth) > 0 {
			t.Error("more than two have a turn")
		}
		leave()
		if synctest.Wait(); <-third != nil {
			t.Error("one that has gone has a turn")
		}
		first()
		first()
		if synctest.Wait(); len(fourth) != 1 {
			t.Error("a turn that was ended is nobody's")
		}
		fifth := take(t.Context())
		if len(fifth) > 0 {
			t.Error("a turn that was ended twice is two")
		}
		time.Sleep(longestTurn)
		if synctest.Wait(); len(fifth) != 1 {
			t.Error("one that does not end its turn keeps it")
		}
		hung()
		(<-fourth)()
		if sixth, seventh := take(t.Context()), take(t.Context()); len(sixth) != 1 || len(seventh) != 0 {
			t.Errorf("of the two turns one is free: %d have it", len(sixth)+len(seventh))
		}
		(<-fifth)()
		synctest.Wait() // the seventh has it
	})
}

// A bounded number of clusters is listed at once, and further ones after these. A cluster that is away uses no turn,
// and one that hangs after the list of Namespaces has a bounded turn: all others are read.
func TestClustersAreListedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2)
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		var mu sync.Mutex
		synced := map[string]bool{}
		servers := map[string]*playedServer{}
		begin := func(name string) {
			p := playServer()
			p.away, p.hangs = strings.HasPrefix(name, "away"), true
			servers[name] = p
			s := p.source(t, Config{Cluster: name, Turns: turns})
			runs.Go(func() {
				_ = s.Run(ctx, func(events []object.Event) {
					mu.Lock()
					defer mu.Unlock()
					for _, e := range events {
						synced[name] = synced[name] || e.Op == object.Synced
					}
				})
			})
			synctest.Wait()
		}
		listed := func() (names []string) {
			for name, p := range servers {
				if p.askedFor("/api/v1/pods") {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		for i := range 3 {
			begin(fmt.Sprintf("away-%d", i))
		}
		begin("hangs")
		for i := range 5 {
			begin(fmt.Sprintf("good-%d", i))
		}
		if got := listed(); !slices.Equal(got, []string{"good-0", "hangs"}) {
			t.Errorf("listed at once: %v", got)
		}
		time.Sleep(longestTurn)
		if synctest.Wait(); len(listed()) != 4 {
			t.Errorf("listed once two do not end: %v", listed())
		}
		for name, p := range servers {
			if strings.HasPrefix(name, "good") {
				p.answer()
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		for i := range 5 {
			if name := fmt.Sprintf("good-%d", i); !synced[name] {
				t.Errorf("%s is not read", name)
			}
		}
		mu.Unlock()
		if n := len(turns.places); n > 0 {
			t.Errorf("%d turns were not given back", n)
		}
		cancel()
		runs.Wait()
	})
}
