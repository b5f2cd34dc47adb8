package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workloadKinds maps the names that kubectl accepts for kinds of workloads to resources of the API group apps.
var workloadKinds = map[string]string{
	"deploy": "deployments", "deployment": "deployments", "deployments": "deployments",
	"ds": "daemonsets", "daemonset": "daemonsets", "daemonsets": "daemonsets",
	"sts": "statefulsets", "statefulset": "statefulsets", "statefulsets": "statefulsets",
	"rs": "replicasets", "replicaset": "replicasets", "replicasets": "replicasets",
}

// ofObject resolves KIND/NAME or KIND/NAME.NAMESPACE to the name of a proxy. For a Pod, the proxy need not be
// connected. For a workload, ofObject returns the proxy of the first connected Pod, in the order of names. Errors: the
// kind is unknown, the workload cannot be read, no Pod is connected, or the connected proxies cannot be listed.
func (t *target) ofObject(ctx context.Context, object string) (string, error) {
	kind, name, _ := strings.Cut(object, "/")
	namespace := cmp.Or(t.namespace, corev1.NamespaceDefault)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 && t.namespace == "" {
		name, namespace = name[:dot], name[dot+1:]
	}
	if slices.Contains([]string{"po", "pod", "pods"}, kind) {
		return name + "." + namespace, nil
	}
	resource := workloadKinds[kind]
	if resource == "" {
		return "", fmt.Errorf("%s: want NAME, NAME.NAMESPACE, pod/NAME, or a workload as deploy/NAME, sts/NAME, ds/NAME, rs/NAME", object)
	}
	if o := openedOf(ctx); o != nil {
		proxy, err := o.workload(namespace, name)
		if err != nil {
			return "", fmt.Errorf("%s in namespace %s: %w", object, namespace, err)
		}
		return proxy, nil
	}
	pods, err := t.podsOf(ctx, resource, namespace, name)
	if err != nil {
		return "", fmt.Errorf("%s in namespace %s: %w", object, namespace, err)
	}
	connected, err := t.connected(ctx)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		if proxy := pod + "." + namespace; slices.Contains(connected, proxy) {
			return proxy, nil
		}
	}
	return "", fmt.Errorf("%s in namespace %s: none of its %d Pods is connected to %s", object, namespace, len(pods), t.where)
}

// podsOf lists the names of a workload's Pods, sorted.
func (c *controlPlane) podsOf(ctx context.Context, resource, namespace, name string) (pods []string, err error) {
	if !c.cluster.Given() {
		return nil, fmt.Errorf("a workload is looked up in a cluster: a kubeconfig is needed (--kubeconfig)")
	}
	in, err := c.cluster.Open()
	if err != nil {
		return nil, err
	}
	var workload struct {
		Spec struct{ Selector *metav1.LabelSelector }
	}
	if err := in.API.Do(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+
		url.PathEscape(namespace)+"/"+resource+"/"+url.PathEscape(name), nil, &workload); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(workload.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var all corev1.PodList
	if err := in.API.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+
		url.PathEscape(namespace)+"/pods?labelSelector="+url.QueryEscape(selector.String()), nil, &all); err != nil {
		return nil, err
	}
	for _, pod := range all.Items {
		pods = append(pods, pod.Name)
	}
	slices.Sort(pods)
	return pods, nil
}
