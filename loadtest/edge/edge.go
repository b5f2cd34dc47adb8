// Package edge judges a gateway under traffic while its configuration changes. It has a mesh of sites, each a host with
// a certificate and its own backends, that changes at random (kinds.go); clients that send requests without a pause
// (clients.go); and for each site a record of all answers that a correct gateway could give (site.go).
//
// The mesh is files in a folder that a control plane reads, and backends and a DNS server on loopback (backends.go).
// Its gateway is started by the caller, as workload gateway of namespace shop, with the network's address .7.
//
// Owns: the backends, the DNS server, the files of the sites. Reads: the gateway's answers. Never: imports the measured
// program; opens a connection that leaves the machine.
package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure a Mesh. All fields but Seed are required.
type Options struct {
	Dir   string        // folder of the configuration; it must exist
	Net   string        // first three numbers of the addresses of backends (store/loopback)
	Plain string        // host:port of the gateway for HTTP
	TLS   string        // host:port of the gateway for HTTPS
	Sites int           // at most maxSites
	Rate  int           // requests per second that clients send together
	Pace  time.Duration // minimum time between two changes of one site
	Seed  uint64
}

// Report is the result of a run.
type Report struct {
	Span     time.Duration
	Requests int
	// Permitted counts the answers 503 of a host whose only backend was deleted at that moment.
	Permitted int
	Handshake int // new TLS connections
	Failures  []string
	Changes   map[string]Effect // by kind
}

// Effect is the sum of the changes of one kind.
type Effect struct {
	Count int
	Took  []time.Duration // from the first write until the gateway answers accordingly, sorted
}

// Total returns the number of changes of all kinds.
func (r *Report) Total() (n int) {
	for _, e := range r.Changes {
		n += e.Count
	}
	return n
}

// Rate returns the requests per second.
func (r *Report) Rate() float64 { return float64(r.Requests) / r.Span.Seconds() }

// String returns the report as a table.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %v (%.0f/s), %d TLS handshakes, %d changes, %d permitted 503, %d failures\n", r.Requests,
		r.Span.Round(time.Millisecond), r.Rate(), r.Handshake, r.Total(), r.Permitted, len(r.Failures))
	for _, name := range Kinds() {
		e := r.Changes[name]
		if e.Count == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-22s %5d   in effect after p50 %v, p99 %v\n", name, e.Count, e.at(.5), e.at(.99))
	}
	return b.String()
}

// at returns a quantile of the times.
func (e Effect) at(q float64) time.Duration {
	if len(e.Took) == 0 {
		return 0
	}
	return e.Took[min(len(e.Took)-1, int(q*float64(len(e.Took))))].Round(time.Millisecond)
}

// Mesh is the sites with their backends. It is created by New and closed by Close.
type Mesh struct {
	Options
	sites    []*site
	backends *backends
	keys     *authority

	mu     sync.Mutex
	report Report
}

// maxSites bounds the sites by the addresses of one network.
const maxSites = 12

// New starts backends and writes the mesh's first configuration. Errors: an address that is taken, a file that cannot
// be written.
func New(o Options) (*Mesh, error) {
	if o.Sites < 1 || o.Sites > maxSites {
		return nil, fmt.Errorf("edge: %d sites, at most %d have addresses", o.Sites, maxSites)
	}
	m := &Mesh{Options: o, report: Report{Changes: map[string]Effect{}}}
	var err error
	if m.keys, err = newAuthority(); err != nil {
		return nil, err
	}
	if m.backends, err = serveBackends(o.Net, firstAddress+o.Sites*perSite); err != nil {
		return nil, err
	}
	for i := range o.Sites {
		s := newSite(m, i)
		m.sites = append(m.sites, s)
		if err := s.begin(); err != nil {
			m.Close()
			return nil, err
		}
	}
	if err := m.write("common.yaml", m.common()); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the backends.
func (m *Mesh) Close() { m.backends.close() }

// Ready returns nil once each site answers over HTTP and HTTPS.
func (m *Mesh) Ready(ctx context.Context) error {
	for _, s := range m.sites {
		for _, p := range []*prober{s.plain, s.secure} {
			if a := p.ask(ctx, s.host); a.err != nil || a.status != 200 {
				return fmt.Errorf("%s: status %d, %v %s", s.host, a.status, a.err, a.body)
			}
		}
	}
	return nil
}

// Run sends requests and changes the mesh for a time. Before, Ready must have returned nil. The error is a change that
// cannot be written or does not come into effect; failed requests are in the report.
func (m *Mesh) Run(ctx context.Context, span time.Duration) (*Report, error) {
	changing, stop := context.WithTimeout(ctx, span)
	defer stop()
	asking, halt := context.WithCancel(ctx)
	began := time.Now()
	var clients, changes sync.WaitGroup
	m.startClients(asking, &clients)
	failed := make(chan error, len(m.sites))
	for i, s := range m.sites {
		random := rand.New(rand.NewPCG(m.Seed, uint64(i)))
		changes.Go(func() { failed <- s.change(changing, random) })
	}
	changes.Wait()
	span = time.Since(began)
	halt()
	clients.Wait()
	close(failed)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Span = span
	for _, e := range m.report.Changes {
		slices.Sort(e.Took)
	}
	for err := range failed {
		if err != nil {
			return &m.report, err
		}
	}
	return &m.report, ctx.Err()
}

// did counts a change.
func (m *Mesh) did(kind string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.report.Changes[kind]
	e.Count++
	e.Took = append(e.Took, took)
	m.report.Changes[kind] = e
}

// write replaces a file of the configuration at once.
func (m *Mesh) write(name, content string) error {
	temporary := filepath.Join(m.Dir, "."+name)
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(m.Dir, name))
}

func (m *Mesh) remove(name string) error { return os.Remove(filepath.Join(m.Dir, name)) }
