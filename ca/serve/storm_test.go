package serve_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

func a0(t testing.TB) spiffeid.ID {
	t.Helper()
	id, err := spiffeid.FromPath(servetest.TrustDomain, "/ns/shop/sa/cart")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func quiet() serve.Config { return serve.Config{Audit: slog.New(slog.DiscardHandler)} }

// BenchmarkCreate measures CSRs per second, with the client on the same machine: renewals on open connections, and
// first certificates on a new TLS connection with a verified token each. cpu-us/op is the CPU time of client and server
// together, which other load on the machine does not change: 2e6 divided by it is the rate of two free cores.
func BenchmarkCreate(b *testing.B) {
	for _, fresh := range []bool{false, true} {
		b.Run(map[bool]string{false: "open", true: "new-connection"}[fresh], func(b *testing.B) {
			cfg := quiet()
			cfg.Limits.Rate, cfg.Limits.Burst = 1e6, 1e6
			ca := servetest.Start(b, cfg)
			csr, _ := request(b)
			own, _ := first(b, ca, "load", "renewals")
			tokens := make([]string, 256)
			for i := range tokens {
				tokens[i] = ca.Token("load", strconv.Itoa(i))
			}
			var next atomic.Int64
			b.SetParallelism(16)
			before := cpu(b)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var conn *grpc.ClientConn
				if !fresh {
					conn = dial(b, ca, own)
					defer conn.Close()
				}
				for pb.Next() {
					at, token := conn, ""
					if fresh {
						at, token = dial(b, ca, nil), tokens[next.Add(1)%256]
					}
					_, err := create(context.Background(), at, token, &securityv1.IstioCertificateRequest{Csr: csr})
					if fresh {
						at.Close()
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "CSR/s")
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// storm sends n requests at once, from `clients` clients with a connection each: a tenth with invalid tokens, a tenth
// for first certificates, the rest for renewals. A client that is refused with ResourceExhausted tries again, as agents
// do.
type storm struct {
	n, clients int
	waits      [2][]time.Duration // renewals, first
	failed     []error
	admitted   int // bad tokens that got a certificate
	again      int64
	peak       uint64 // heap in use, bytes
}

func (s *storm) run(t testing.TB, ca *servetest.CA) {
	csr, _ := request(t)
	renewing, _ := first(t, ca, "storm", "renewals")
	byToken, byCert := make([]*grpc.ClientConn, s.clients), make([]*grpc.ClientConn, s.clients)
	for i := range s.clients {
		byToken[i], byCert[i] = dial(t, ca, nil), dial(t, ca, renewing)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for i := range s.n {
		wg.Go(func() {
			conn, token, kind := byCert[i%s.clients], "", 0
			bad := i%10 == 0
			switch {
			case bad:
				conn, token = byToken[i%s.clients], "Zm9v.YmFy"
			case i%10 == 1:
				conn, token, kind = byToken[i%s.clients], ca.Token("storm", strconv.Itoa(i)), 1
			}
			var err error
			for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
				if _, err = create(context.Background(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr}); status.Code(err) != codes.ResourceExhausted {
					break
				}
				atomic.AddInt64(&s.again, 1)
				time.Sleep(pause/2 + rand.N(pause/2))
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case bad && err == nil:
				s.admitted++
			case bad && status.Code(err) != codes.Unauthenticated, !bad && err != nil:
				s.failed = append(s.failed, fmt.Errorf("request %d: %w", i, err))
			case !bad:
				s.waits[kind] = append(s.waits[kind], time.Since(began))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.peak = max(s.peak, m.HeapInuse+m.StackInuse)
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	for i := range s.clients {
		byToken[i].Close()
		byCert[i].Close()
	}
}

func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

func (s *storm) String() string {
	return fmt.Sprintf("%d requests at once: p99 of first certificates %s, of renewals %s; %d tried again; heap and stacks of client and server %d MiB",
		s.n, p99(s.waits[1]).Round(time.Millisecond), p99(s.waits[0]).Round(time.Millisecond), s.again, s.peak>>20)
}

func (s *storm) check(t testing.TB) {
	t.Helper()
	if len(s.failed) > 0 {
		t.Errorf("%d good requests failed, the first: %v", len(s.failed), s.failed[0])
	}
	if s.admitted > 0 {
		t.Errorf("%d bad tokens got certificates", s.admitted)
	}
	if want := s.n * 9 / 10; len(s.waits[0])+len(s.waits[1]) != want {
		t.Errorf("%d served, want %d", len(s.waits[0])+len(s.waits[1]), want)
	}
	if got := p99(s.waits[1]); s.n >= 50000 && got > 10*time.Second { // the small one runs beside other tests
		t.Errorf("p99 of first certificates is %s", got)
	}
}

// TestStorm: all good ones are served, no bad one, within a queue that is too short for all. STORM=50000 for the great
// one.
func TestStorm(t *testing.T) {
	s := &storm{n: 2000, clients: 20}
	cfg := quiet()
	if n, err := strconv.Atoi(os.Getenv("STORM")); err == nil {
		s.n, s.clients = n, 100
	} else {
		cfg.Limits.Waiting = 1000
	}
	s.run(t, servetest.Start(t, cfg))
	t.Log(s)
	s.check(t)
}

// BenchmarkStorm is one storm of 50,000.
func BenchmarkStorm(b *testing.B) {
	for range b.N {
		s := &storm{n: 50000, clients: 100}
		s.run(b, servetest.Start(b, quiet()))
		s.check(b)
		b.ReportMetric(p99(s.waits[1]).Seconds(), "p99-first-s")
		b.ReportMetric(p99(s.waits[0]).Seconds(), "p99-renewal-s")
		b.ReportMetric(float64(s.peak>>20), "peak-MiB")
	}
}
