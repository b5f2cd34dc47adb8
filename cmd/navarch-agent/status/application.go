package status

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Application runs the readiness probe of an application periodically. The probe is the field readinessProbe of
// Istio's ProxyConfig. On a virtual machine the probe comes from the machine's WorkloadGroup
// (https://istio.io/latest/docs/reference/config/networking/workload-group/#ReadinessProbe).
type Application struct {
	probe *networkingv1.ReadinessProbe
	check func(context.Context) error
}

// The documented defaults of ReadinessProbe's fields, for fields that are zero.
const (
	defaultPeriod   = 10 * time.Second
	defaultFailures = 3
)

// maxSaid limits the stored output of a command, and the text of a reported reason, in bytes.
const maxSaid = 512

// NewApplication returns an Application for a probe, which must not change afterwards. It starts nothing. The callback
// proxy must return nil when the Envoy in front of the application can serve traffic, and otherwise an error with the
// reason. While proxy returns an error, each probe fails with that error, without a request to the application.
// NewApplication returns an error if the probe has no method, a port or scheme is invalid, a command is empty, or a
// number is negative.
func NewApplication(probe *networkingv1.ReadinessProbe, proxy func(context.Context) error) (*Application, error) {
	for _, of := range []struct {
		field string
		value int32
	}{{"initialDelaySeconds", probe.GetInitialDelaySeconds()}, {"timeoutSeconds", probe.GetTimeoutSeconds()},
		{"periodSeconds", probe.GetPeriodSeconds()}, {"successThreshold", probe.GetSuccessThreshold()},
		{"failureThreshold", probe.GetFailureThreshold()}} {
		if of.value < 0 {
			return nil, fmt.Errorf("%s: %d is negative", of.field, of.value)
		}
	}
	p := newProber("localhost")
	p.dialer = &net.Dialer{} // redirection exempts the agent's connections, so no special source address is needed
	ask, err := p.readiness(probe)
	if err != nil {
		return nil, err
	}
	return &Application{probe: probe, check: func(ctx context.Context) error {
		if err := proxy(ctx); err != nil {
			return err
		}
		return ask(ctx)
	}}, nil
}

// readiness returns a function that runs the probe once. HTTP and TCP probes without a host, and all gRPC probes, go to
// localhost.
func (p *prober) readiness(probe *networkingv1.ReadinessProbe) (func(context.Context) error, error) {
	switch m := probe.GetHealthCheckMethod().(type) {
	case *networkingv1.ReadinessProbe_HttpGet:
		at, err := at(m.HttpGet.GetHost(), m.HttpGet.GetPort())
		if s := m.HttpGet.GetScheme(); s != "" && !strings.EqualFold(s, "http") && !strings.EqualFold(s, "https") {
			err = fmt.Errorf("scheme %q is not HTTP or HTTPS", s)
		}
		return func(ctx context.Context) error { return p.answers(ctx, m.HttpGet, at) }, err
	case *networkingv1.ReadinessProbe_TcpSocket:
		at, err := at(m.TcpSocket.GetHost(), m.TcpSocket.GetPort())
		return func(ctx context.Context) error {
			c, err := p.dial(ctx, "tcp", at)
			if err == nil {
				err = c.Close()
			}
			return err
		}, err
	case *networkingv1.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 {
			return nil, errors.New("exec has no command")
		}
		return func(ctx context.Context) error { return succeeds(ctx, m.Exec.Command) }, nil
	case *networkingv1.ReadinessProbe_Grpc:
		_, err := at("", m.Grpc.GetPort())
		return func(ctx context.Context) error {
			return p.grpc(ctx, &GRPCProbe{Port: port(m.Grpc.GetPort()), Service: m.Grpc.GetService()}, "navarch-agent")
		}, err
	}
	return nil, errors.New("the probe needs one of httpGet, tcpSocket, exec and grpc")
}

// at joins host and port as "host:port". An empty host becomes localhost. An error is returned if port is not from 1 to
// 65535.
func at(host string, port uint32) (string, error) {
	if port == 0 || port > 65535 {
		return "", fmt.Errorf("port %d: want a number from 1 to 65535", port)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))), nil
}

// answers runs an HTTP probe. It returns nil for a status from 200 to 399.
func (p *prober) answers(ctx context.Context, h *networkingv1.HTTPHealthCheckConfig, at string) error {
	address := strings.ToLower(cmp.Or(h.GetScheme(), "http")) + "://" + at + "/" + strings.TrimPrefix(h.GetPath(), "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	for _, header := range h.GetHttpHeaders() {
		if request.Header.Set(header.GetName(), header.GetValue()); strings.EqualFold(header.GetName(), "Host") {
			request.Host = header.GetValue()
		}
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // the body is not read
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %s", answer.Status)
	}
	return nil
}

// succeeds runs a command and returns nil for exit code 0. The error contains the beginning of the command's output.
// When ctx ends, the command's process group is killed.
func succeeds(ctx context.Context, command []string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	said := &beginning{}
	c.Stdout, c.Stderr = said, said
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%w: %s", err, said.text.Bytes()))
	}
	return nil
}

// beginning stores the first maxSaid bytes of a command's output.
type beginning struct{ text bytes.Buffer }

// Write implements io.Writer. It discards the bytes beyond maxSaid, and never fails.
func (b *beginning) Write(p []byte) (int, error) {
	b.text.Write(p[:min(len(p), maxSaid-b.text.Len())])
	return len(p), nil
}

// Run probes the application until ctx ends, and returns ctx.Err(). It calls report with nil when the application
// becomes healthy. It calls report with the reason, in at most 512 bytes, when the application becomes unhealthy. The
// application becomes healthy after successThreshold consecutive successes, and unhealthy after failureThreshold
// consecutive failures. Before the first report it is neither. Run waits for report to return before the next probe.
func (a *Application) Run(ctx context.Context, report func(wrong error)) error {
	if err := pause(ctx, time.Duration(a.probe.GetInitialDelaySeconds())*time.Second); err != nil {
		return err
	}
	period := cmp.Or(time.Duration(a.probe.GetPeriodSeconds())*time.Second, defaultPeriod)
	timeout := cmp.Or(time.Duration(a.probe.GetTimeoutSeconds())*time.Second, defaultTimeout)
	needed := map[bool]int32{true: max(a.probe.GetSuccessThreshold(), 1), false: cmp.Or(a.probe.GetFailureThreshold(), defaultFailures)}
	known, well, same, was := false, false, int32(0), false
	for {
		one, cancel := context.WithTimeout(ctx, timeout)
		err := a.check(one)
		if cancel(); ctx.Err() != nil {
			return ctx.Err()
		}
		is := err == nil
		if same++; is != was {
			same, was = 1, is
		}
		if same >= needed[is] && (!known || is != well) {
			known, well = true, is
			report(brief(err))
		}
		if err := pause(ctx, period); err != nil {
			return err
		}
	}
}

// brief limits the text of err to maxSaid bytes.
func brief(err error) error {
	if err == nil || len(err.Error()) <= maxSaid {
		return err
	}
	return errors.New(strings.ToValidUTF8(err.Error()[:maxSaid], ""))
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
