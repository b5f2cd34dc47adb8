package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

func portIn(t *testing.T, address string) uint32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func httpGet(h *networkingv1.HTTPHealthCheckConfig) *networkingv1.ReadinessProbe {
	return &networkingv1.ReadinessProbe{HealthCheckMethod: &networkingv1.ReadinessProbe_HttpGet{HttpGet: h}}
}

func tcpSocket(port uint32) *networkingv1.ReadinessProbe {
	return &networkingv1.ReadinessProbe{HealthCheckMethod: &networkingv1.ReadinessProbe_TcpSocket{TcpSocket: &networkingv1.TCPHealthCheckConfig{Port: port}}}
}

func command(words ...string) *networkingv1.ReadinessProbe {
	return &networkingv1.ReadinessProbe{HealthCheckMethod: &networkingv1.ReadinessProbe_Exec{Exec: &networkingv1.ExecHealthCheckConfig{Command: words}}}
}

func grpcOf(port uint32, service string) *networkingv1.ReadinessProbe {
	return &networkingv1.ReadinessProbe{HealthCheckMethod: &networkingv1.ReadinessProbe_Grpc{Grpc: &networkingv1.GrpcHealthCheckConfig{Port: port, Service: service}}}
}

// Probes of an application work over HTTP, TCP, gRPC and by a command; failures have a reason.
func TestApplicationProbes(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusFound)
		case "/host":
			if r.Host != "shop.example.com" || r.Header.Get("X-A") != "b" {
				w.WriteHeader(http.StatusBadRequest)
			}
		case "/fails":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer web.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	services := health.NewServer()
	services.SetServingStatus("off", healthv1.HealthCheckResponse_NOT_SERVING)
	g := grpc.NewServer()
	healthv1.RegisterHealthServer(g, services)
	go func() { _ = g.Serve(l) }() // until Stop
	defer g.Stop()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	at, serves, nobody := portIn(t, web.Listener.Addr().String()), portIn(t, l.Addr().String()), portIn(t, closed.Addr().String())
	headers := []*networkingv1.HTTPHeader{{Name: "host", Value: "shop.example.com"}, {Name: "x-a", Value: "b"}}
	for name, c := range map[string]struct {
		probe *networkingv1.ReadinessProbe
		wrong string // empty: it is well
	}{
		"HTTP":                  {httpGet(&networkingv1.HTTPHealthCheckConfig{Port: at}), ""},
		"HTTP, host":            {httpGet(&networkingv1.HTTPHealthCheckConfig{Host: "127.0.0.1", Port: at, Path: "host", HttpHeaders: headers}), ""},
		"HTTP, elsewhere":       {httpGet(&networkingv1.HTTPHealthCheckConfig{Port: at, Path: "/moved"}), ""},
		"HTTP, error":           {httpGet(&networkingv1.HTTPHealthCheckConfig{Port: at, Path: "/fails"}), "500"},
		"HTTPS":                 {httpGet(&networkingv1.HTTPHealthCheckConfig{Port: portIn(t, secure.Listener.Addr().String()), Scheme: "HTTPS"}), ""},
		"HTTP, nobody":          {httpGet(&networkingv1.HTTPHealthCheckConfig{Port: nobody}), "refused"},
		"TCP":                   {tcpSocket(at), ""},
		"TCP, nobody":           {tcpSocket(nobody), "refused"},
		"gRPC":                  {grpcOf(serves, ""), ""},
		"gRPC, not serving":     {grpcOf(serves, "off"), "NOT_SERVING"},
		"gRPC, no such service": {grpcOf(serves, "x"), "NotFound"},
		"command":               {command("true"), ""},
		"command, fails":        {command("sh", "-c", "echo it is broken; exit 3"), "exit status 3: it is broken"},
		"command, not there":    {command("/no/such/program"), "no such file"},
	} {
		a, err := NewApplication(c.probe, func(context.Context) error { return nil })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = a.check(ctx)
		if cancel(); (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
	for name, probe := range map[string]*networkingv1.ReadinessProbe{
		"no method": {}, "no port": tcpSocket(0), "a port that is none": grpcOf(70000, ""), "no command": command(), "scheme": httpGet(&networkingv1.HTTPHealthCheckConfig{Port: 1, Scheme: "FTP"}),
	} {
		if _, err := NewApplication(probe, nil); err == nil {
			t.Errorf("%s is a probe", name)
		}
	}
	for _, set := range []func(*networkingv1.ReadinessProbe){
		func(p *networkingv1.ReadinessProbe) { p.PeriodSeconds = -1 }, func(p *networkingv1.ReadinessProbe) { p.TimeoutSeconds = -1 },
		func(p *networkingv1.ReadinessProbe) { p.FailureThreshold = -1 },
	} {
		probe := tcpSocket(at)
		set(probe)
		if _, err := NewApplication(probe, nil); err == nil || !strings.Contains(err.Error(), "-1 is negative") {
			t.Errorf("%v is a probe: %v", probe, err)
		}
	}
	away, err := NewApplication(tcpSocket(at), func(context.Context) error { return errors.New("draining") })
	if err != nil {
		t.Fatal(err)
	}
	if err := away.check(t.Context()); fmt.Sprint(err) != "draining" {
		t.Errorf("behind a proxy that drains: %v", err)
	}
}

// A command that does not end is killed with its child processes, and its stored output is limited.
func TestCommandEnds(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- succeeds(ctx, []string{"sh", "-c", "sleep 600 & echo $! > " + pid + ".new; mv " + pid + ".new " + pid + "; wait"})
	}()
	child := ""
	for limit := time.Now().Add(time.Minute); child == "" && time.Now().Before(limit); time.Sleep(time.Millisecond) {
		raw, _ := os.ReadFile(pid)
		child = strings.TrimSpace(string(raw))
	}
	cancel()
	err := <-ended
	if err == nil || len(err.Error()) > 2*maxSaid || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("process %s runs on: %s", child, stat)
		}
	}
}

// Thresholds, periods, timeouts and the first delay are those of the probe; only changes are reported.
func TestApplicationRuns(t *testing.T) {
	type said struct {
		at    time.Duration
		wrong string
	}
	for name, c := range map[string]struct {
		probe   *networkingv1.ReadinessProbe
		answers string // of each time that it is asked: + well, - not, . nothing; the last one is repeated
		want    []said
	}{
		"defaults":   {&networkingv1.ReadinessProbe{}, "+--+---+", []said{{0, ""}, {60 * time.Second, "no"}, {70 * time.Second, ""}}},
		"never well": {&networkingv1.ReadinessProbe{}, "-", []said{{20 * time.Second, "no"}}},
		"own numbers": {&networkingv1.ReadinessProbe{InitialDelaySeconds: 5, PeriodSeconds: 2, SuccessThreshold: 3, FailureThreshold: 1}, "++-+++-",
			[]said{{9 * time.Second, "no"}, {15 * time.Second, ""}, {17 * time.Second, "no"}}},
		"no answer": {&networkingv1.ReadinessProbe{TimeoutSeconds: 4, FailureThreshold: 1}, ".+", []said{{4 * time.Second, "context deadline exceeded"}, {14 * time.Second, ""}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, began, got := 0, time.Now(), []said{}
			a := &Application{probe: c.probe, check: func(ctx context.Context) error {
				answer := c.answers[min(n, len(c.answers)-1)]
				switch n++; answer {
				case '+':
					return nil
				case '.':
					<-ctx.Done()
					return ctx.Err()
				}
				return errors.New("no")
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			err := a.Run(ctx, func(wrong error) {
				text := ""
				if wrong != nil {
					text = wrong.Error()
				}
				got = append(got, said{time.Since(began), text})
			})
			if fmt.Sprint(got) != fmt.Sprint(c.want) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: said %v, want %v; %v", name, got, c.want, err)
			}
		})
	}
}
