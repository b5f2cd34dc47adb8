package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Results are + and -; the decision after each is the same letter, or a dot without a decision.
func TestThreshold(t *testing.T) {
	for _, test := range []struct {
		success, failure int32
		answers, want    string
	}{{1, 1, "+-+", "+-+"}, {1, 3, "---+--", "..-+.."}, {2, 1, "+-++", ".-.+"}, {2, 2, "+-+-++--", ".....+.-"}, {0, 0, "+-", "+-"}} {
		h := NewThreshold(&corev1.Probe{SuccessThreshold: test.success, FailureThreshold: test.failure})
		got := ""
		for _, answer := range test.answers {
			if h.Add(answer == '+') {
				got += string(answer)
			} else {
				got += "."
			}
		}
		if got != test.want {
			t.Errorf("success %d, failure %d, %s: %s, want %s", test.success, test.failure, test.answers, got, test.want)
		}
	}
}

// The first probe starts after the initial delay, and each later one a period after the previous answer. Each has its
// timeout.
func TestRunTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var asked []time.Duration
		reports := 0
		Run(ctx, &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 3, TimeoutSeconds: 2, FailureThreshold: 2}, func(ctx context.Context) error {
			asked = append(asked, time.Since(began))
			<-ctx.Done()
			return ctx.Err()
		}, func(err error) {
			if reports++; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("reported %v", err)
			}
			cancel()
		})
		if len(asked) != 2 || asked[0] != 5*time.Second || asked[1] != 10*time.Second || reports != 1 {
			t.Errorf("asked at %v, %d reports", asked, reports)
		}
	})
}

func TestChecks(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, err := strconv.Atoi(r.Header.Get("X-Code")); err == nil {
			w.WriteHeader(code)
		} else if r.Host != "named.example.com" || r.URL.String() != "/path?q=1" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer web.Close()
	host, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	number, _ := strconv.Atoi(port)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving, server := health.NewServer(), grpc.NewServer()
	serving.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, serving)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	rpc := int32(listener.Addr().(*net.TCPAddr).Port)
	target := Target{IP: host, Container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(number)}}}, Dial: (&net.Dialer{}).DialContext,
		Exec: func(_ context.Context, command []string) error {
			if command[0] == "false" {
				return errors.New("exit status 1")
			}
			return nil
		}}
	get := func(headers ...corev1.HTTPHeader) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "path?q=1", Port: intstr.FromString("web"), HTTPHeaders: headers}}
	}
	down := "down"
	for name, test := range map[string]struct {
		probe corev1.ProbeHandler
		ok    bool
	}{
		"HTTP with the headers of the probe":  {get(corev1.HTTPHeader{Name: "Host", Value: "named.example.com"}), true},
		"HTTP redirection":                    {get(corev1.HTTPHeader{Name: "X-Code", Value: "302"}), true},
		"HTTP refusal":                        {get(corev1.HTTPHeader{Name: "X-Code", Value: "400"}), false},
		"HTTP on a port that nobody names so": {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("none")}}, false},
		"TCP":                                 {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(number)}}, true},
		"TCP where nobody listens":            {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(1)}}, false},
		"gRPC":                                {corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: rpc}}, true},
		"gRPC of a service that is down":      {corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: rpc, Service: &down}}, false},
		"command":                             {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, true},
		"command that fails":                  {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := target.Check(ctx, test.probe); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
