package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/demo/site"
)

// openGateway installs a gateway by its chart, and calls web by the gateway's address, as users outside of the cluster
// do. They go on calling until the demo ends.
func (d *demo) openGateway(ctx context.Context) (string, error) {
	began := time.Now()
	if _, err := d.helm.Run(ctx, "install", "istio-ingressgateway", d.gatewayChart, "-n", "edge", "--create-namespace",
		"-f", "deploy/demo/kube/gateway-values.yaml", "--wait", "--timeout=180s"); err != nil {
		return "", err
	}
	took := since(began)
	owner, err := site.New()
	if err != nil {
		return "", err
	}
	secret, err := owner.Next("edge")
	if err != nil {
		return "", err
	}
	if err := errors.Join(d.apply(ctx, string(secret), manifest("gateway")), os.WriteFile(d.siteRoot(), owner.Root(), 0o644)); err != nil {
		return "", err
	}
	address, err := d.kubectl(ctx, "get", "service", "-n", "edge", "istio-ingressgateway",
		"-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
	if err != nil || net.ParseIP(address) == nil {
		return "", fmt.Errorf("the Service has the address %q: %w", address, errors.Join(err))
	}
	d.users = newUsers(d.cluster.PID(), address, owner)
	applied := time.Now()
	if err := d.await(ctx, minute, d.users.redirected); err != nil {
		return "", err
	}
	if err := d.await(ctx, minute, d.users.call); err != nil {
		return "", err
	}
	served := since(applied)
	d.users.start(ctx)
	return fmt.Sprintf("2 Pods are ready after %s; HTTPS to %s at %s: 200 from web, called by the gateway, %s after kubectl apply; HTTP: 301",
		took, site.Host, address, served), nil
}

// siteRoot is the path of the root that users trust.
func (d *demo) siteRoot() string { return filepath.Join(d.cluster.Dir(), "site-root.pem") }

// users call web from outside of the cluster, over kept connections and over new ones.
type users struct {
	address     string // of the gateway's load balancer
	kept, fresh *http.Client
	mu          sync.Mutex
	sent        int
	failed      int
	first       string // failure
}

const usersPace = 50 * time.Millisecond // between two requests

// newUsers returns users in the network namespace of a process, for whom the host has an address.
func newUsers(pid int, address string, owner *site.Site) *users {
	client := func(kept bool) *http.Client {
		return &http.Client{Timeout: 10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: owner.Client(), ForceAttemptHTTP2: true, DisableKeepAlives: !kept,
				DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
					_, port, err := net.SplitHostPort(to)
					if err != nil {
						return nil, err
					}
					return dialFrom(ctx, pid, network, net.JoinHostPort(address, port))
				}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &users{address: address, kept: client(true), fresh: client(false)}
}

// String returns the address that they call.
func (u *users) String() string {
	if u == nil {
		return ""
	}
	return u.address
}

// dialFrom connects from the network namespace of a process.
func dialFrom(ctx context.Context, pid int, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var space *os.File
		if space, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
			return
		}
		defer space.Close()
		if err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}

// redirected checks that plain HTTP leads to HTTPS.
func (u *users) redirected(ctx context.Context) error {
	res, _, err := site.Get(ctx, u.fresh, "http")
	if err == nil && (res.StatusCode != http.StatusMovedPermanently || res.Header.Get("Location") != "https://"+site.Host+"/") {
		err = fmt.Errorf("plain HTTP: status %d to %q", res.StatusCode, res.Header.Get("Location"))
	}
	return err
}

// call checks that web answers over HTTPS, and is called by the gateway.
func (u *users) call(ctx context.Context) error { return u.callBy(ctx, u.fresh) }

func (u *users) callBy(ctx context.Context, by *http.Client) error {
	const gateway = "URI=spiffe://cluster.local/ns/edge/sa/istio-ingressgateway"
	res, body, err := site.Get(ctx, by, "https")
	if err != nil {
		return err
	}
	var web struct{ Name, Caller string }
	err = json.Unmarshal(body, &web)
	if err != nil || res.StatusCode != http.StatusOK || web.Name != "web" || !strings.Contains(web.Caller, gateway) {
		return fmt.Errorf("status %d: %.200s %w", res.StatusCode, body, errors.Join(err))
	}
	return nil
}

// start sends requests until ctx ends.
func (u *users) start(ctx context.Context) {
	for _, by := range []*http.Client{u.kept, u.fresh} {
		go func() {
			tick := time.NewTicker(2 * usersPace)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					u.count(u.callBy(context.WithoutCancel(ctx), by))
				}
			}
		}()
	}
}

func (u *users) count(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent++
	if err == nil {
		return
	}
	u.failed++
	if u.first == "" {
		u.first = fmt.Sprintf("%s: %v", time.Now().Format(time.TimeOnly), err)
	}
}

// watch begins a span of the requests. The returned function ends it, and says how many were sent. Its error is the
// first failure, or that nothing was sent.
func (u *users) watch() func() (said string, err error) {
	sent, failed, _ := u.counts()
	return func() (string, error) {
		now, wrong, first := u.counts()
		said := fmt.Sprintf("from outside %d, %d failed", now-sent, wrong-failed)
		switch {
		case wrong > failed:
			return said, fmt.Errorf("from outside: %s", first)
		case now == sent:
			return said, errors.New("nothing was sent from outside")
		}
		return said, nil
	}
}

// counts returns the requests, those that failed, and the first failure.
func (u *users) counts() (sent, failed int, first string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent, u.failed, u.first
}
