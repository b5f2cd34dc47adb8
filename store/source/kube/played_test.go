package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// playedServer plays the API server of a cluster without the kinds of Istio, within a test's own time. Watches that
// begin with a list deliver only that list; earlier revisions are compacted (410).
type playedServer struct {
	mu      sync.Mutex
	objects map[string]map[string]string // by the path that lists them: names, and values of a label
	asked   map[string]string            // paths, and which encodings were accepted last
	takes   time.Duration                // until an answer begins
	away    bool                         // no request is answered
	hangs   bool                         // only Namespaces are answered
	let     chan struct{}                // closed once that ends
	ctx     context.Context              // of the open requests
	end     context.CancelFunc           // ends it
}

func playServer() *playedServer {
	p := &playedServer{objects: map[string]map[string]string{}, asked: map[string]string{}, let: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// source is one that reads it.
func (p *playedServer) source(t *testing.T, c Config) *Source {
	t.Helper()
	c.API = &rest.Config{Host: "https://192.0.2.1", Transport: p}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *playedServer) askedFor(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.asked[path]
	return is
}

// slow sets the duration of responses.
func (p *playedServer) slow(takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes = takes
}

// answer ends that it hangs.
func (p *playedServer) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = false
	close(p.let)
}

// goes closes all connections, and stops answering; comes answers again.
func (p *playedServer) goes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	p.end()
}

func (p *playedServer) comes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
	p.ctx, p.end = context.WithCancel(context.Background())
}

// kindsOf maps the last part of a path to the kind.
var kindsOf = map[string]string{"namespaces": "Namespace", "pods": "Pod", "nodes": "Node", "services": "Service", "serviceaccounts": "ServiceAccount",
	"endpointslices": "EndpointSlice", "roles": "Role", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding"}

// RoundTrip implements http.RoundTripper.
func (p *playedServer) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.asked[r.URL.Path] = r.Header.Get("Accept")
	away, wait, open, takes := p.away, p.let, p.ctx, p.takes
	if !p.hangs || strings.HasSuffix(r.URL.Path, "/namespaces") {
		wait = nil
	}
	objects := maps.Clone(p.objects[r.URL.Path])
	p.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	kind, version := kindsOf[path.Base(r.URL.Path)], "v1"
	if group, is := strings.CutPrefix(path.Dir(r.URL.Path), "/apis/"); is {
		version = group
	}
	head := http.Header{"Content-Type": {"application/json"}}
	if r.URL.Query().Get("sendInitialEvents") == "" {
		gone := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}`
		return &http.Response{StatusCode: http.StatusGone, Header: head, Body: io.NopCloser(strings.NewReader(gone)), Request: r}, nil
	}
	body, to := io.Pipe()
	go func() {
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			_, _ = fmt.Fprintf(to, `{"type": "ADDED", "object": {"kind": %q, "apiVersion": %q, "metadata": {"name": %q, "namespace": "shop", "labels": {"is": %q}}}}`+"\n", kind, version, name, objects[name])
		}
		_, _ = fmt.Fprintf(to, `{"type": "BOOKMARK", "object": {"kind": %q, "apiVersion": %q, "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}}`+"\n", kind, version)
		select {
		case <-open.Done():
		case <-r.Context().Done():
		}
		_ = to.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: head, Body: body, Request: r}, nil
}

// reads runs a source that reads this server. since returns the events of Services, and Synced, since its last call,
// sorted, once the source is idle; stop ends it.
func (p *playedServer) reads(t *testing.T) (s *Source, since func() []string, stop func()) {
	t.Helper()
	s = p.source(t, Config{Cluster: "west"})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var emitted []string
	var runs sync.WaitGroup
	runs.Go(func() {
		_ = s.Run(ctx, func(events []object.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				switch {
				case e.Op == object.Synced:
					emitted = append(emitted, "synced")
				case e.ID.Kind == "Service" && e.Op == object.Delete:
					emitted = append(emitted, "gone "+e.ID.Name)
				case e.ID.Kind == "Service":
					emitted = append(emitted, e.Object.Labels["is"]+" "+e.ID.Name)
				}
			}
		})
	})
	since = func() (all []string) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		all, emitted = slices.Sorted(slices.Values(emitted)), nil
		return all
	}
	return s, since, func() {
		cancel()
		runs.Wait()
		p.end()
	}
}

const services = "/api/v1/services"

func unreadable(s *Source, why string) bool {
	return slices.ContainsFunc(s.Problems(), func(p object.Problem) bool { return p.Code == problem.Unreadable && strings.Contains(p.Message, why) })
}

// An API server that needs half a minute for each response is read completely. While responses need longer than the
// timeout, problems report it and earlier objects stay; afterwards all objects are emitted. Built-in kinds are
// requested as protobuf.
func TestSlowAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playServer()
		p.objects["/api/v1/namespaces"], p.objects[services] = map[string]string{"shop": ""}, map[string]string{"a": "old"}
		p.slow(30 * time.Second)
		s, since, stop := p.reads(t)
		time.Sleep(2 * time.Minute)
		if got := since(); !slices.Equal(got, []string{"old a", "synced"}) {
			t.Errorf("half a minute for each: %q", got)
		}
		p.slow(2 * time.Minute)
		p.objects[services] = map[string]string{"b": "new"}
		p.end() // all watches
		time.Sleep(30 * time.Minute)
		if got := since(); len(got) > 0 || !unreadable(s, "no answer in time") {
			t.Errorf("two minutes for each: %q, problems %v", got, s.Problems())
		}
		p.comes()
		p.slow(time.Second)
		time.Sleep(5 * time.Minute)
		if got := since(); !slices.Equal(got, []string{"gone a", "new b"}) || unreadable(s, "") {
			t.Errorf("a second for each: %q, problems %v", got, s.Problems())
		}
		stop()
		for path, accepts := range p.asked {
			if !strings.HasPrefix(accepts, "application/vnd.kubernetes.protobuf,") {
				t.Errorf("%s is asked for as %s", path, accepts)
			}
		}
	})
}

// After an API server was away for an hour, and three in ten objects changed, exactly these are emitted: deleted, new
// and changed ones.
func TestAwayForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playServer()
		p.objects["/api/v1/namespaces"], p.objects[services] = map[string]string{"shop": ""}, map[string]string{}
		for i := range 100 {
			p.objects[services][fmt.Sprintf("s-%03d", i)] = "old"
		}
		s, since, stop := p.reads(t)
		time.Sleep(time.Minute)
		if got := since(); len(got) != 101 {
			t.Fatalf("at first %q", got)
		}
		p.goes()
		time.Sleep(time.Hour)
		if got := since(); len(got) > 0 || !unreadable(s, "connection refused") {
			t.Errorf("while it is away %q, problems %v", got, s.Problems())
		}
		if age := s.Age(time.Now()); age < time.Hour || age > time.Hour+2*time.Minute {
			t.Errorf("it has said nothing for %v", age)
		}
		var want []string
		for i := range 10 {
			gone, other, more := fmt.Sprintf("s-%03d", i), fmt.Sprintf("s-%03d", 10+i), fmt.Sprintf("t-%03d", i)
			delete(p.objects[services], gone)
			p.objects[services][other], p.objects[services][more] = "new", "new"
			want = append(want, "gone "+gone, "new "+other, "new "+more)
		}
		slices.Sort(want)
		p.comes()
		time.Sleep(time.Minute)
		if got := since(); !slices.Equal(got, want) {
			t.Errorf("once it is back %q, want %q", got, want)
		}
		stop()
	})
}
