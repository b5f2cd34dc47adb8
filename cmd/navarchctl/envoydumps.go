package main

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchctl/cluster"
)

// Limits of the Envoy dumps in a report, and the URL of Envoy's admin interface within a Pod.
const (
	mostDumps    = 20
	maxDumpBytes = 64 << 20 // of one dump
	envoyAdmin   = "http://localhost:15000"
)

// illProxy is a proxy that refuses a version or is behind. Its Envoy is asked for a dump.
type illProxy struct {
	namespace, name, state string
	since                  time.Time // the time since which the proxy is behind; zero: it is not behind
}

// illOf returns at most mostDumps of the report's ill proxies. Proxies that refuse a version, or from which a version
// is withheld, come first. Proxies that are only behind follow. Each of the two groups is sorted by since, zero times
// first.
func illOf(r *report.Report) (all []illProxy) {
	for _, p := range r.Processes {
		for i := range p.Proxies {
			one := &p.Proxies[i]
			refuses, behind := one.Ill()
			ill := illProxy{namespace: one.Node.Namespace, name: one.Node.Name, state: fleetapi.Refusing, since: one.Behind}
			if !refuses {
				ill.state = fleetapi.Behind
			}
			if refuses || behind {
				all = append(all, ill)
			}
		}
	}
	slices.SortFunc(all, func(a, b illProxy) int {
		return cmp.Or(-cmp.Compare(a.state, b.state), a.since.Compare(b.since), cmp.Compare(a.name, b.name))
	})
	return all[:min(len(all), mostDumps)]
}

// dumps requests dumps from the Envoys of ill proxies, through the API server. The keys of the map are the names of
// files in the report's archive. An entry of list has the name of its file, or the reason why there is no dump.
func (c *collection) dumps(ctx context.Context, r *report.Report) (list []report.Envoy, dumps map[string][]byte) {
	dumps = map[string][]byte{}
	ill := illOf(r)
	list = make([]report.Envoy, len(ill))
	var in *cluster.Cluster
	why := "Envoy's admin interface listens on the Pod's loopback address, and no kubeconfig is given to reach it: " +
		"use navarchctl proxy-config all --envoy ADDRESS"
	if len(ill) > 0 && c.at.inCluster() {
		var err error
		if in, err = c.at.cluster.Open(); err != nil {
			why = err.Error()
		}
	}
	var mu sync.Mutex // guards dumps
	pages := make([]page, len(ill))
	for i, err := range atEach(pages, func(i int, _ page) error {
		one := ill[i]
		proxy := one.name + "." + one.namespace
		list[i] = report.Envoy{Proxy: proxy, State: one.state, Error: why}
		if in == nil {
			return nil
		}
		dump, err := envoyPage(ctx, in, one.namespace, one.name, dumpPage)
		if err != nil {
			return err
		}
		list[i].Error, list[i].File = "", report.EnvoyFile(proxy)
		mu.Lock()
		dumps[list[i].File] = dump
		mu.Unlock()
		return nil
	}) {
		if err != nil {
			list[i].Error = err.Error()
		}
	}
	return list, dumps
}

// envoyPage returns a page of the admin interface of the Envoy in a Pod. Errors: the Pod cannot be read, its Envoy does
// not answer, or the page has more than maxDumpBytes.
func envoyPage(ctx context.Context, in *cluster.Cluster, namespace, name, path string) ([]byte, error) {
	var pod corev1.Pod
	object := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	if err := in.API.Do(ctx, http.MethodGet, object, nil, &pod); err != nil {
		return nil, err
	}
	at := in.Pod(&pod)
	defer at.Close()
	envoy := page{address: at.String(), by: in.String(), what: "Envoy's admin interface", url: envoyAdmin, client: at.Client(),
		most: maxDumpBytes}
	return envoy.get(ctx, path)
}
