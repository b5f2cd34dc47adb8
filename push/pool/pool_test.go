package pool

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// spec builds the text without its capitals, so that different Specs may make the same bytes.
type spec struct {
	text  string
	calls *calls
}

type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[text]++
}

var errBad = errors.New("bad")

func (s spec) Build() (*xds.Resource, error) {
	s.calls.add(s.text)
	if s.text == "bad" {
		return nil, errBad
	}
	return xds.Encode(xds.Endpoint, "name", wrapperspb.String(strings.ToLower(s.text)))
}

func (s spec) Fragment() (*xds.Fragment, error) {
	s.calls.add(s.text)
	if s.text == "bad" {
		return nil, errBad
	}
	return xds.EncodeFragment("name", 2, wrapperspb.String(strings.ToLower(s.text)))
}

func (t *table[V, C]) remembered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bySpec)
}

// kinds are the two tables of a pool behind one interface.
var kinds = map[string]struct {
	get    func(p *Pool, s spec) (any, error)
	alive  func(p *Pool) int
	builds func(p *Pool) int64
	specs  func(p *Pool) int
}{
	"resources": {
		get:    func(p *Pool, s spec) (any, error) { return p.Resource(s) },
		alive:  func(p *Pool) int { n, _ := p.Size(); return n },
		builds: func(p *Pool) int64 { return p.Builds(xds.Endpoint) },
		specs:  func(p *Pool) int { return p.resources.remembered() },
	},
	"fragments": {
		get:    func(p *Pool, s spec) (any, error) { return p.Fragment(s) },
		alive:  func(p *Pool) int { _, n := p.Size(); return n },
		builds: func(p *Pool) int64 { return p.Fragments() },
		specs:  func(p *Pool) int { return p.fragments.remembered() },
	},
}

func TestOnce(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			p, c := &Pool{}, &calls{}
			get := func(text string) any {
				t.Helper()
				v, err := k.get(p, spec{text, c})
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			a := get("a")
			if get("a") != a || c.n["a"] != 1 {
				t.Errorf("the same Spec was built %d times", c.n["a"])
			}
			if get("A") != a || c.n["A"] != 1 {
				t.Error("the same bytes are two pointers")
			}
			if get("A"); c.n["A"] != 1 {
				t.Error("a Spec that led to bytes which were there is built again")
			}
			b := get("b")
			if b == a || k.alive(p) != 2 || k.builds(p) != 3 {
				t.Errorf("%d alive after %d builds, want 2 and 3", k.alive(p), k.builds(p))
			}
			runtime.KeepAlive(a)
			runtime.KeepAlive(b)
		})
	}
}

// Errors are returned and not cached, and do not count as builds.
func TestErrors(t *testing.T) {
	for name, k := range kinds {
		p, c := &Pool{}, &calls{}
		for range 2 {
			if _, err := k.get(p, spec{"bad", c}); !errors.Is(err, errBad) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c.n["bad"] != 2 || k.builds(p) != 0 || k.specs(p) != 0 || k.alive(p) != 0 {
			t.Errorf("%s: %d calls, %d builds, %d Specs, %d alive", name, c.n["bad"], k.builds(p), k.specs(p), k.alive(p))
		}
	}
}

// collect runs the garbage collector until ok returns true; cleanups run in a goroutine of their own.
func collect(ok func() bool) bool {
	for range 1000 {
		if ok() {
			return true
		}
		runtime.GC()
		runtime.Gosched()
	}
	return false
}

// A value without references is collected, with its Specs, and is built again for the next request.
func TestCollected(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			p, c := &Pool{}, &calls{}
			kept, _ := k.get(p, spec{"kept", c})
			func() {
				for i := range 50 {
					_, _ = k.get(p, spec{fmt.Sprint("x", i), c})
				}
			}()
			if !collect(func() bool { return k.alive(p) == 1 }) {
				t.Fatalf("%d alive, want the one that is held", k.alive(p))
			}
			if n := k.specs(p); n != 1 {
				t.Errorf("%d Specs remembered, want 1", n)
			}
			again, _ := k.get(p, spec{"x1", c})
			if c.n["x1"] != 2 || k.alive(p) != 2 {
				t.Errorf("x1 was built %d times, %d alive", c.n["x1"], k.alive(p))
			}
			if v, _ := k.get(p, spec{"kept", c}); v != kept || c.n["kept"] != 1 {
				t.Error("what is held was lost")
			}
			runtime.KeepAlive(again)
			runtime.KeepAlive(kept)
		})
	}
}

// Specs that make the same bytes, as edits without an effect do, do not accumulate while the bytes are alive.
func TestSpecsAreBounded(t *testing.T) {
	for name, k := range kinds {
		p, c := &Pool{}, &calls{}
		text := strings.Repeat("a", 12) // and all its ways to write capitals
		held, _ := k.get(p, spec{text, c})
		for i := range 4 * specsPerBody {
			other := []byte(text)
			for bit := range other {
				if i>>bit&1 == 1 {
					other[bit] = 'A'
				}
			}
			v, err := k.get(p, spec{string(other), c})
			if err != nil || v != held {
				t.Fatalf("%s: %v, %v", name, v, err)
			}
			if n := k.specs(p); n > specsPerBody {
				t.Fatalf("%s: %d Specs remembered, want at most %d", name, n, specsPerBody)
			}
		}
		runtime.KeepAlive(held)
	}
}

// With many goroutines, few Specs and a running garbage collector, each Spec has one pointer with the right bytes.
func TestConcurrent(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			p, c := &Pool{}, &calls{}
			var wg sync.WaitGroup
			start := make(chan struct{})
			seen := make([][]any, 8)
			for g := range seen {
				wg.Go(func() {
					<-start
					for i := range 400 {
						v, err := k.get(p, spec{fmt.Sprint("x", i%20), c})
						if err != nil {
							t.Error(err)
							return
						}
						if i < 20 {
							seen[g] = append(seen[g], v)
						}
						if i%100 == 0 {
							runtime.GC()
						}
					}
				})
			}
			close(start)
			wg.Wait()
			for g := range seen {
				for i := range seen[g] {
					if seen[g][i] != seen[0][i] {
						t.Fatalf("x%d is two pointers", i)
					}
				}
			}
			runtime.KeepAlive(seen)
		})
	}
}

// sharing is a SharedSpec with a fragment of its text. small states that it has no fragment.
type sharing struct {
	name string
	spec
	small bool
}

func (s sharing) Build() (*xds.Resource, error) { return s.BuildInPieces(func() {}) }

func (s sharing) BuildInPieces(pause func()) (*xds.Resource, error) {
	f, err := s.FragmentInPieces(pause)
	if err != nil {
		return nil, err
	}
	return s.Around(f)
}

func (s sharing) Shared() (key any, ok bool) { return s.spec, !s.small }

func (s sharing) FragmentInPieces(pause func()) (*xds.Fragment, error) {
	pause()
	s.calls.add(s.text)
	return xds.EncodePart("", wrapperspb.String(s.text))
}

func (s sharing) Around(f *xds.Fragment) (*xds.Resource, error) {
	return xds.EncodeRope(xds.Endpoint, s.name, wrapperspb.String(""), []*xds.Fragment{f})
}

// The fragment of a SharedSpec is built once for all names, and a SharedSpec without a fragment builds by itself.
func TestFragmentsOfResourcesAreShared(t *testing.T) {
	var p Pool
	c := &calls{}
	var held []*xds.Resource
	for i := range 20 {
		pauses := 0
		s := sharing{name: fmt.Sprint(i), spec: spec{"text", c}}
		r, err := p.ResourceInPieces(s, func() { pauses++ })
		if err != nil || r.Name != s.name || (pauses > 0) != (i == 0) {
			t.Fatalf("%v, %v with %d pauses", r, err, pauses)
		}
		held = append(held, r)
	}
	if c.n["text"] != 1 || p.Fragments() != 1 || p.Builds(xds.Endpoint) != int64(len(held)) {
		t.Errorf("built %d times, %d fragments", c.n["text"], p.Fragments())
	}
	for i := range 3 {
		r, err := p.ResourceInPieces(sharing{fmt.Sprint(i), spec{"small", c}, true}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, r)
	}
	if c.n["small"] != 3 || p.Fragments() != 1 {
		t.Errorf("built %d times, %d fragments", c.n["small"], p.Fragments())
	}
	runtime.KeepAlive(held)
}
