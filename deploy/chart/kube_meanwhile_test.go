//go:build kube

package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// whilePodsAreMade calls do while ten Pods a second are created, and checks that each is injected. The API server of
// the test calls only ready endpoints (--enable-aggregator-routing). Other API servers call the address of the Service,
// and kube-proxy leads to terminating Pods that still serve while no Pod is ready. So a refusal for want of ready
// endpoints is no failure while a terminating Pod serves.
func (i *installation) whilePodsAreMade(do func()) {
	i.t.Helper()
	i.meanwhile("Pod", 100*time.Millisecond, func() error {
		err := i.injected(context.Background())
		if err != nil && strings.Contains(err.Error(), "no endpoints available") && i.webhooksServe() {
			i.t.Logf("terminating Pods serve alone: %v", err)
			return nil
		}
		return err
	}, do)
}

// webhooksServe reports whether a Pod serves the webhooks of istiod's Service, even if it terminates.
func (i *installation) webhooksServe() bool {
	found, err := i.client.DiscoveryV1().EndpointSlices("istio-system").List(context.Background(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=istiod"})
	return err == nil && slices.ContainsFunc(found.Items, func(s discoveryv1.EndpointSlice) bool {
		return hasPort(s, "https-webhook") && slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Serving != nil && *e.Conditions.Serving
		})
	})
}

// hasPort reports whether the endpoints of a slice have a port of the Service.
func hasPort(s discoveryv1.EndpointSlice, name string) bool {
	return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == name })
}

// whilePodsAreLetIn calls do while ten Pods a second are created, and checks that none is refused, with a proxy or
// without.
func (i *installation) whilePodsAreLetIn(do func()) {
	i.t.Helper()
	i.meanwhile("Pod", 100*time.Millisecond, func() error {
		if err := i.injected(context.Background()); !errors.Is(err, errWithoutProxy) {
			return err
		}
		return nil
	}, do)
}

// whileAsked runs `do` while the Pod web, behind its Envoy, receives twenty requests a second, which must all be
// answered. Without root there is no such Pod (revisions).
func (i *installation) whileAsked(do func()) {
	i.t.Helper()
	if os.Geteuid() != 0 {
		do()
		return
	}
	web := i.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/shop/pods/web:9080/proxy/")
	i.meanwhile("request", 50*time.Millisecond, func() error {
		page, err := web.DoRaw(context.Background())
		if err == nil && !strings.Contains(string(page), "web") {
			err = fmt.Errorf("the answer is %q", page)
		}
		return err
	}, do)
}

// meanwhile calls do, and calls try repeatedly until do returns. Every call of try must succeed.
func (i *installation) meanwhile(what string, every time.Duration, try func() error, do func()) {
	i.t.Helper()
	ctx, stop := context.WithCancel(i.t.Context())
	var trying sync.WaitGroup
	count := 0
	trying.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			count++
			if err := try(); err != nil {
				i.t.Errorf("%s %d: %v", what, count, err)
			}
		}
	})
	do()
	stop()
	trying.Wait()
	i.t.Logf("%s: %d meanwhile", what, count)
	if count == 0 {
		i.t.Errorf("%s: none meanwhile", what)
	}
}
