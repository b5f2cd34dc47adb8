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

// Application asks an application again and again how it is, as readinessProbe of the proxy's configuration says: on a machine that is the probe of its
// WorkloadGroup (https://istio.io/latest/docs/reference/config/networking/workload-group/#ReadinessProbe).
type Application struct {
	probe *networkingv1.ReadinessProbe
	check func(context.Context) error
}

// The values of a ReadinessProbe that are zero, by its documentation.
const (
	defaultPeriod   = 10 * time.Second
	defaultFailures = 3
)

// maxSaid bounds what is kept of what an application, or a command, says, in bytes.
const maxSaid = 512

// NewApplication checks a probe. proxy says why the proxy before the application cannot take traffic: then the application is not well, either.
func NewApplication(probe *networkingv1.ReadinessProbe, proxy func(context.Context) error) (*Application, error) {
	p := newProber("localhost")
	p.dialer = &net.Dialer{} // what the agent sends is not redirected
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

// readiness is how a probe is asked. The host is this machine where none is named.
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
	return nil, errors.New("none of httpGet, tcpSocket, exec and grpc")
}

func at(host string, port uint32) (string, error) {
	if port == 0 || port > 65535 {
		return "", fmt.Errorf("port %d: want a number from 1 to 65535", port)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))), nil
}

// answers asks over HTTP: 200 to 399 is well.
func (p *prober) answers(ctx context.Context, h *networkingv1.HTTPHealthCheckConfig, at string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.ToLower(cmp.Or(h.GetScheme(), "http"))+"://"+at+"/"+strings.TrimPrefix(h.GetPath(), "/"), nil)
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
	_ = answer.Body.Close() // whatever it says is not read
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// succeeds runs a command, and ends it and what it started with the context.
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

// beginning keeps as much as is said of a command.
type beginning struct{ text bytes.Buffer }

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	b.text.Write(p[:min(len(p), maxSaid-b.text.Len())])
	return len(p), nil
}

// Run asks until the context ends, whose error it returns. It reports when the application is known to be well, or not to be (why), first and whenever
// that changes.
func (a *Application) Run(ctx context.Context, report func(wrong error)) error {
	if err := pause(ctx, time.Duration(a.probe.GetInitialDelaySeconds())*time.Second); err != nil {
		return err
	}
	period, timeout := cmp.Or(time.Duration(a.probe.GetPeriodSeconds())*time.Second, defaultPeriod), cmp.Or(time.Duration(a.probe.GetTimeoutSeconds())*time.Second, defaultTimeout)
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

// brief is an error of bounded length.
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
