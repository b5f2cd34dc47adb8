package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Target is one container of a Pod, as its node reaches it.
type Target struct {
	Container *corev1.Container
	IP        string                                                               // of the Pod
	Dial      func(ctx context.Context, network, address string) (net.Conn, error) // from the node
	Exec      func(ctx context.Context, command []string) error                    // inside of the container
}

// Check runs a probe once; nil: it succeeded. The error is the reason of the failure.
func (t Target) Check(ctx context.Context, h corev1.ProbeHandler) error {
	switch {
	case h.Exec != nil:
		return t.Exec(ctx, h.Exec.Command)
	case h.HTTPGet != nil:
		return t.get(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		return t.connect(ctx, h.TCPSocket)
	case h.GRPC != nil:
		return t.health(ctx, h.GRPC)
	}
	return errors.New("a probe of no known kind")
}

// Hook runs a hook; nil: it succeeded, or there is no hook. A context that ends while a hook sleeps is an error.
func (t Target) Hook(ctx context.Context, h *corev1.LifecycleHandler) error {
	switch {
	case h == nil:
		return nil
	case h.Exec != nil:
		return t.Exec(ctx, h.Exec.Command)
	case h.HTTPGet != nil:
		return t.get(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		return t.connect(ctx, h.TCPSocket)
	case h.Sleep != nil:
		wait(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
		return ctx.Err()
	}
	return errors.New("a hook of no known kind")
}

// port returns a port number; a name is resolved by the container's ports.
func (t Target) port(p intstr.IntOrString) (string, error) {
	if p.Type == intstr.Int {
		return strconv.Itoa(p.IntValue()), nil
	}
	for _, named := range t.Container.Ports {
		if named.Name == p.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	if _, err := strconv.Atoi(p.StrVal); err == nil {
		return p.StrVal, nil
	}
	return "", fmt.Errorf("couldn't find port: %q", p.StrVal)
}

func (t Target) address(host string, p intstr.IntOrString) (string, error) {
	port, err := t.port(p)
	if host == "" {
		host = t.IP
	}
	return net.JoinHostPort(host, port), err
}

func (t Target) get(ctx context.Context, h *corev1.HTTPGetAction) error {
	address, err := t.address(h.Host, h.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(h.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+strings.TrimPrefix(h.Path, "/"), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "kube-probe/1.36")
	r.Header.Set("Accept", "*/*")
	for _, header := range h.HTTPHeaders {
		if r.Header.Set(header.Name, header.Value); strings.EqualFold(header.Name, "Host") {
			r.Host = header.Value
		}
	}
	// The certificate of a probed container is not verified, as in the kubelet.
	transport := &http.Transport{DialContext: t.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 10<<10)) // only for the text of the error
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d: %.200s", answer.StatusCode, body)
	}
	return nil
}

func (t Target) connect(ctx context.Context, h *corev1.TCPSocketAction) error {
	address, err := t.address(h.Host, h.Port)
	if err != nil {
		return err
	}
	c, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

func (t Target) health(ctx context.Context, h *corev1.GRPCAction) error {
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(t.IP, strconv.Itoa(int(h.Port))), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return t.Dial(ctx, "tcp", address) }))
	if err != nil {
		return err
	}
	defer c.Close()
	request := &grpc_health_v1.HealthCheckRequest{}
	if h.Service != nil {
		request.Service = *h.Service
	}
	answer, err := grpc_health_v1.NewHealthClient(c).Check(ctx, request)
	if err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("gRPC health: %s", answer.GetStatus())
	}
	return err
}
