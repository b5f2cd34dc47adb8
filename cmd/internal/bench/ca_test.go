package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/serve"
)

// BenchmarkCSR measures certificates per second, with client and server on this machine and with the real journal and
// token check. First certificates use a new TLS connection and a separate token each (target: 1,000 on two cores), and
// renewals use open connections (target: 4,000). cpu-us/op is the CPU time of both sides: 2e6 divided by it is the rate
// of two otherwise idle cores.
func BenchmarkCSR(b *testing.B) {
	for _, fresh := range []bool{true, false} {
		b.Run(map[bool]string{false: "open", true: "new-connection"}[fresh], func(b *testing.B) {
			a := newAuthority(b, serve.Limits{Rate: 1e6, Burst: 1e6}, signingKey(b))
			csr, _ := request()
			own := a.certificate(b, 0)
			var tokens []string
			for i := 0; fresh && i < b.N; i++ {
				tokens = append(tokens, a.token(b, i))
			}
			var numbers counter
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			before := cpu(b)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var conn *grpc.ClientConn
				if !fresh {
					conn = a.dial(b, own)
					defer conn.Close()
				}
				for pb.Next() {
					at, token := conn, ""
					if fresh {
						at, token = a.dial(b, nil), tokens[numbers.next()]
					}
					_, err := create(context.Background(), at, token, csr)
					if fresh {
						at.Close()
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "CSR/s")
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// storm is n concurrent requests over `clients` clients with two connections each: a tenth with bad tokens, a tenth for
// first certificates, the rest renewals. A client that gets ResourceExhausted retries, as agents do.
type storm struct {
	n, clients int
	waits      [2][]time.Duration // renewals, first
	failed     []error
	admitted   int // bad tokens that got a certificate
	again      atomic.Int64
}

func (s *storm) run(b testing.TB, a *authority) {
	csr, _ := request()
	var byToken, byCertificate []*grpc.ClientConn
	for i := range s.clients {
		byToken = append(byToken, a.dial(b, nil))
		byCertificate = append(byCertificate, a.dial(b, a.certificate(b, i)))
	}
	tokens := make([]string, s.n)
	for i := range s.n {
		if i%10 < 2 {
			tokens[i] = a.token(b, i)
		}
		if i%10 == 0 { // of no key: the signature is another token's
			head, _ := split(tokens[i])
			_, tail := split(a.token(b, i+1))
			tokens[i] = head + "." + tail
		}
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	began := time.Now()
	for i := range s.n {
		asking.Go(func() {
			conn, kind := byCertificate[i%s.clients], 0
			if i%10 < 2 {
				conn, kind = byToken[i%s.clients], 1
			}
			err := s.ask(conn, tokens[i], csr)
			mu.Lock()
			defer mu.Unlock()
			switch bad := i%10 == 0; {
			case bad && err == nil:
				s.admitted++
			case bad && status.Code(err) != codes.Unauthenticated, !bad && err != nil:
				s.failed = append(s.failed, fmt.Errorf("request %d: %w", i, err))
			case !bad:
				s.waits[kind] = append(s.waits[kind], time.Since(began))
			}
		})
	}
	asking.Wait()
	for i := range s.clients {
		byToken[i].Close()
		byCertificate[i].Close()
	}
}

func split(token string) (head, signature string) {
	at := strings.LastIndexByte(token, '.')
	return token[:at], token[at+1:]
}

func (s *storm) ask(conn *grpc.ClientConn, token, csr string) error {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		_, err := create(ctx, conn, token, csr)
		cancel()
		if status.Code(err) != codes.ResourceExhausted {
			return err
		}
		s.again.Add(1)
		time.Sleep(pause/2 + rand.N(pause/2))
	}
}

func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

// BenchmarkCSRStorm measures a storm of 50,000 certificate requests. Targets: every valid request is served, no invalid
// one is, and the 99th percentile of first certificates is at most 10 s. The CA is a process of its own, whose greatest
// resident memory is reported.
func BenchmarkCSRStorm(b *testing.B) {
	for range b.N {
		s := &storm{n: 50000, clients: 100}
		a, peak := elsewhere(b)
		s.run(b, a)
		if len(s.failed) > 0 {
			b.Errorf("%d good requests failed, the first: %v", len(s.failed), s.failed[0])
		}
		if served := len(s.waits[0]) + len(s.waits[1]); s.admitted > 0 || served != s.n*9/10 {
			b.Errorf("%d good ones served, %d bad ones", served, s.admitted)
		}
		b.ReportMetric(p99(s.waits[1]).Seconds(), "p99-first-s")
		b.ReportMetric(p99(s.waits[0]).Seconds(), "p99-renewal-s")
		b.ReportMetric(float64(s.again.Load()), "retries")
		b.ReportMetric(float64(peak()>>20), "server-MiB")
	}
}
