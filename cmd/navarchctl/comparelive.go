package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/compare"
	"navarch.io/navarch/store/admit/inject"
)

// adminPort is the port of the admin interface of Istio's proxies.
const adminPort = "15000"

// podPatience is the time limit for reading one Pod's dump.
const podPatience = 2 * time.Minute

// pods compares the proxies of the Pods that the arguments and the flag --namespace select (see choose).
func (c *comparing) pods(ctx context.Context, args []string) error {
	in, all, err := podsWithProxies(ctx, &c.in, c.namespace)
	if err != nil {
		return err
	}
	chosen, err := choose(all, args, c.namespace)
	if err != nil {
		return err
	}
	for _, pod := range chosen {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.pod(ctx, in.Pod(pod)); err != nil {
			return err
		}
	}
	return nil
}

// podsWithProxies lists the Pods of a namespace that have Istio's proxy, or of all namespaces if the name is empty. The
// Pods have only the fields that slim keeps.
func podsWithProxies(ctx context.Context, of *cluster.Flags, namespace string) (in *cluster.Cluster, all []*corev1.Pod, err error) {
	if in, err = of.Open(); err != nil {
		return nil, nil, err
	}
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
	}
	if err := in.API.Each(ctx, path, func(raw json.RawMessage) error {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			return fmt.Errorf("a Pod: %w", err)
		}
		if hasProxy(pod) {
			all = append(all, slim(pod))
		}
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("%s: Pods: %w", in, err)
	}
	return in, all, nil
}

// slim returns a copy of a Pod with the fields that this command reads, to save memory.
func slim(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels,
		OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions}}
}

// hasProxy reports whether a Pod has Istio's proxy, as a container or as an init container.
func hasProxy(pod *corev1.Pod) bool {
	is := func(c corev1.Container) bool { return c.Name == inject.ProxyContainer }
	return slices.ContainsFunc(pod.Spec.Containers, is) || slices.ContainsFunc(pod.Spec.InitContainers, is)
}

// choose selects ready Pods. Without arguments it selects one Pod of each workload, sorted by namespace and name. An
// argument names a Pod or a workload. For each argument, choose selects one Pod, in the order of the arguments. It also
// sorts the list all by namespace and name. It returns an error if an argument has no ready Pod, or if the selection is
// empty.
func choose(all []*corev1.Pod, args []string, namespace string) (chosen []*corev1.Pod, err error) {
	slices.SortFunc(all, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	ready := slices.DeleteFunc(slices.Clone(all), func(p *corev1.Pod) bool { return cluster.Unready(p) != "" })
	if len(args) == 0 {
		type workload struct {
			namespace string
			inject.Owner
		}
		seen := map[workload]bool{}
		for _, pod := range ready {
			if w := (workload{pod.Namespace, inject.OwnerOf(pod)}); !seen[w] {
				seen[w] = true
				chosen = append(chosen, pod)
			}
		}
		if len(chosen) == 0 {
			return nil, fmt.Errorf("no ready Pod with a container %s: select others with --namespace and --context", inject.ProxyContainer)
		}
		return chosen, nil
	}
	for _, arg := range args {
		kind, name, is := strings.Cut(arg, "/")
		if !is {
			kind, name = "pod", arg
		}
		of := namespace
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 && of == "" {
			name, of = name[:dot], name[dot+1:]
		}
		of = cmp.Or(of, corev1.NamespaceDefault)
		i := slices.IndexFunc(ready, func(p *corev1.Pod) bool {
			if slices.Contains([]string{"po", "pod", "pods"}, kind) {
				return p.Namespace == of && p.Name == name
			}
			return p.Namespace == of && isOf(p, workloadKinds[kind], name)
		})
		if i < 0 {
			return nil, fmt.Errorf("%s: no ready Pod with a container %s in namespace %s", arg, inject.ProxyContainer, of)
		}
		chosen = append(chosen, ready[i])
	}
	return chosen, nil
}

// isOf reports whether a Pod belongs to the workload of the given resource (such as deployments) and name. The Pod of a
// Deployment belongs to its ReplicaSet, too. isOf returns false if the parameter resource is empty.
func isOf(pod *corev1.Pod, resource, name string) bool {
	is := func(kind, of string) bool { return resource == strings.ToLower(kind)+"s" && of == name }
	owner, controller := inject.OwnerOf(pod), metav1.GetControllerOf(pod)
	return is(owner.Kind, owner.Name) || controller != nil && is(controller.Kind, controller.Name)
}

// pod compares the proxy of one Pod, and closes the connection to the Pod. If the dump cannot be requested, pod adds
// the reason to the report and returns nil. Any returned error is a fault of this program.
func (c *comparing) pod(ctx context.Context, pod *cluster.Pod) error {
	defer pod.Close()
	reading, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	body, err := adminOf(reading, pod, dumpPage)
	if err != nil {
		c.report.Unread = append(c.report.Unread, compare.Unread{Dump: pod.String(), Reason: err.Error()})
		return nil
	}
	defer body.Close()
	return c.dumps(reading, pod.String(), body)
}

// adminOf requests a path of the admin interface of a Pod's proxy. The caller closes the body. A status other than 200
// is an error that names the Pod.
func adminOf(ctx context.Context, pod *cluster.Pod, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+adminPort+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := pod.Client().Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: the admin interface at port %s answers %s", pod, adminPort, answer.Status)
	}
	return answer.Body, nil
}
