package edge

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	firstAddress = 10 // last number of the first backend's address
	perService   = 8  // addresses of a service, of which it has two at a time
	perSite      = 2*perService + 2
)

// site is one host of the gateway, with a Gateway, a VirtualService, a Secret and two services of its own. Its fields
// below mu are shared with clients; all others belong to the goroutine that changes the site.
type site struct {
	m      *Mesh
	name   string // s0
	host   string // s0.test
	number int

	editions int             // number of the newest edition of the VirtualService; each answer contains its edition
	suffix   string          // of the VirtualService's name
	routes   []route         // of the VirtualService
	extra    []string        // further hosts of Gateway and VirtualService
	services map[string]*svc // by name: a, b
	subsets  map[string]string
	timeout  int               // of the DestinationRule, in seconds
	entries  map[string]string // address of the DNS destinations by host

	plain, secure *prober

	mu      sync.Mutex
	states  []state // all states so far
	settled int     // index of the oldest state that a request that begins now may meet
	serial  int64   // of the oldest certificate that a connection that begins now may meet
	history []string
}

// svc is a Service with its EndpointSlice.
type svc struct {
	pair     int    // which two of its addresses are its endpoints
	portName string // of its port 80
}

// route is a destination of the VirtualService.
type route struct {
	service, subset string // service: a, b, or the host of an entry
	weight          int
}

// state describes the answers of a correct gateway between two changes.
type state struct {
	edition int
	ips     map[string]bool
	absent  bool // the only backend does not exist: 503
}

func (o state) isAbsent() bool { return o.absent }

// answer is the result of one request.
type answer struct {
	status  int
	edition int
	ip      string
	serial  int64 // of the server's certificate; 0: plain text
	body    string
	err     error
}

func newSite(m *Mesh, i int) *site {
	s := &site{m: m, number: i, name: fmt.Sprintf("s%d", i), suffix: "x", subsets: map[string]string{}, entries: map[string]string{},
		services: map[string]*svc{"a": {portName: "http"}, "b": {portName: "http"}}, timeout: 5}
	s.host = s.name + ".test"
	s.routes = []route{{service: "a", weight: 100}}
	return s
}

// begin writes the site's first configuration.
func (s *site) begin() error {
	s.plain, s.secure = s.m.prober("http", kept), s.m.prober("https", kept)
	serial, err := s.certify()
	if err != nil {
		return err
	}
	s.serial = serial
	s.route(s.routes...)
	for _, err := range []error{s.m.write(s.name+"-pods.yaml", s.pods()), s.writeService("a"), s.writeService("b"), s.writeRule(),
		s.writeGateway(), s.writeRoutes()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// address returns one of the addresses of a service.
func (s *site) address(service string, i int) string {
	offset := 0
	if service == "b" {
		offset = perService
	}
	return fmt.Sprintf("%s.%d", s.m.Net, firstAddress+s.number*perSite+offset+i)
}

// endpoints returns the addresses of a service's endpoints, by version.
func (s *site) endpoints(service string) map[string]string {
	i := 2 * s.services[service].pair
	return map[string]string{"v1": s.address(service, i), "v2": s.address(service, i+1)}
}

// reached returns the addresses of all backends that the routes lead to.
func (s *site) reached() map[string]bool {
	all := map[string]bool{}
	for _, r := range s.routes {
		if r.weight == 0 {
			continue
		}
		if address, is := s.entries[r.service]; is {
			all[address] = true
			continue
		}
		for version, address := range s.endpoints(r.service) {
			if want := s.subsets[r.subset]; r.subset == "" || version == want {
				all[address] = true
			}
		}
	}
	return all
}

// route makes a new edition of the VirtualService. It is not written yet.
func (s *site) route(routes ...route) {
	s.editions++
	s.routes = routes
	s.push(false)
}

// push begins a state, by the routes and endpoints as they are now. It must precede the write that makes it possible.
func (s *site) push(absent bool) {
	next := state{edition: s.editions, ips: s.reached(), absent: absent}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, next)
}

// note adds to the history that failures show.
func (s *site) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	s.history = s.history[max(0, len(s.history)-6):]
}

// begun returns the states and certificates that a request that begins now may meet.
func (s *site) begun() (state int, serial int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled, s.serial
}

// judge returns why no correct gateway gives an answer to a request that began in a state, or "". permitted means that
// the answer is a 503 of a host whose only backend was deleted.
func (s *site) judge(from int, serial int64, fresh bool, a answer) (why string, permitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.states[from:]
	switch {
	case a.err == nil && a.status == http.StatusServiceUnavailable && slices.ContainsFunc(open, state.isAbsent):
		return "", true
	case a.err != nil:
		why = a.err.Error()
	case a.status != http.StatusOK:
		why = fmt.Sprintf("status %d: %.200s", a.status, a.body)
	case fresh && a.serial != 0 && a.serial < serial:
		why = fmt.Sprintf("certificate %d, which %d has replaced", a.serial, serial)
	case !slices.ContainsFunc(open, func(o state) bool { return o.edition == a.edition && o.ips[a.ip] }):
		why = fmt.Sprintf("edition %d from backend %s", a.edition, a.ip)
	default:
		return "", false
	}
	var want []string
	for _, o := range open {
		want = append(want, fmt.Sprintf("edition %d %v absent=%v", o.edition, slices.Sorted(maps.Keys(o.ips)), o.absent))
	}
	return fmt.Sprintf("%s: %s; want %s; history:\n    %s", s.host, why, strings.Join(want, " or "),
		strings.Join(s.history, "\n    ")), false
}

// settle waits until the newest state is in effect over HTTP and HTTPS: answers have its edition, and one came from a
// backend that `seen` accepts. From then on earlier states are wrong.
func (s *site) settle(ctx context.Context, seen func(ip string) bool) error {
	s.mu.Lock()
	index := len(s.states) - 1
	s.mu.Unlock()
	for _, p := range []*prober{s.plain, s.secure} {
		err := eventually(ctx, func() error {
			a := s.m.judged(ctx, p, s, s.host)
			if a.err == nil && (a.edition != s.editions || !seen(a.ip)) {
				a.err = fmt.Errorf("status %d of edition %d from %s", a.status, a.edition, a.ip)
			}
			return a.err
		})
		if err != nil {
			want := slices.Sorted(maps.Keys(s.reached()))
			return fmt.Errorf("%s: edition %d, from one of %v, is not in effect: %w", s.host, s.editions, want, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = index
	return nil
}

// anyone accepts all backends.
func anyone(string) bool { return true }

const (
	patience   = 30 * time.Second // until a change is in effect
	probePause = 10 * time.Millisecond
)

// eventually calls check until it returns nil, for patience at most. The error is its last one.
func eventually(ctx context.Context, check func() error) error {
	end := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(end) {
			return err
		}
		if err := pause(ctx, probePause); err != nil {
			return err
		}
	}
}

// pause waits; the error is the context's.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
