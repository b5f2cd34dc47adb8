package analyze

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// resource is a kind of objects of a cluster, with the path of its list.
type resource struct {
	kind
	version, plural string
}

// path returns the API path of the list of all objects. It excludes EndpointSlices that were imported from other
// clusters, as navarchd's leader does.
func (r resource) path() string {
	switch r.group {
	case "":
		return "/api/" + r.version + "/" + r.plural
	case discoveryv1.GroupName:
		return "/apis/" + r.group + "/" + r.version + "/" + r.plural + "?labelSelector=" +
			url.QueryEscape("!multicluster.kubernetes.io/service-name")
	}
	return "/apis/" + r.group + "/" + r.version + "/" + r.plural
}

// listed are the kinds that are read in all namespaces. ConfigMaps are read in the control plane's namespace only, and
// Secrets and CustomResourceDefinitions by name, because their lists may be very long.
var listed = []resource{
	{kind{"", "Namespace"}, "v1", "namespaces"}, {kind{"", "Node"}, "v1", "nodes"}, {kind{"", "Service"}, "v1", "services"},
	{kind{"", "Pod"}, "v1", "pods"}, {kind{discoveryv1.GroupName, "EndpointSlice"}, "v1", "endpointslices"},
	{kind{"apps", "Deployment"}, "v1", "deployments"},
	{kind{"admissionregistration.k8s.io", "MutatingWebhookConfiguration"}, "v1", "mutatingwebhookconfigurations"},
	{kind{model.GroupNetworking, "VirtualService"}, "v1", "virtualservices"}, {kind{model.GroupNetworking, "DestinationRule"}, "v1",
		"destinationrules"},
	{kind{model.GroupNetworking, "Gateway"}, "v1", "gateways"}, {kind{model.GroupNetworking, "ServiceEntry"}, "v1", "serviceentries"},
	{kind{model.GroupNetworking, "Sidecar"}, "v1", "sidecars"}, {kind{model.GroupNetworking, "EnvoyFilter"}, "v1alpha3", "envoyfilters"},
	{kind{model.GroupNetworking, "WorkloadEntry"}, "v1", "workloadentries"}, {kind{model.GroupNetworking, "WorkloadGroup"}, "v1",
		"workloadgroups"},
	{kind{model.GroupNetworking, "ProxyConfig"}, "v1beta1", "proxyconfigs"},
	{kind{model.GroupSecurity, "PeerAuthentication"}, "v1", "peerauthentications"}, {kind{model.GroupSecurity, "AuthorizationPolicy"}, "v1",
		"authorizationpolicies"},
	{kind{model.GroupSecurity, "RequestAuthentication"}, "v1", "requestauthentications"},
	{kind{model.GroupTelemetry, "Telemetry"}, "v1", "telemetries"}, {kind{model.GroupExtensions, "WasmPlugin"}, "v1alpha1", "wasmplugins"},
	{kind{model.GroupExtensions, "TrafficExtension"}, "v1alpha1", "trafficextensions"},
}

// optional are the kinds that may be unreadable. Checks that need an unreadable kind are left out. The findings of the
// remaining checks stay correct. If the ConfigMap of the mesh configuration is unreadable, the defaults are used.
var optional = []string{"Namespace", "Node", "Deployment", "MutatingWebhookConfiguration", "ConfigMap", "CustomResourceDefinition",
	"Secret", "Certificate"}

// older has, by API group, the version that is read if a cluster does not serve the newest version (listed).
var older = map[string]string{model.GroupNetworking: "v1beta1", model.GroupSecurity: "v1beta1", model.GroupTelemetry: "v1alpha1"}

// patience bounds the reading of one kind.
const patience = 2 * time.Minute

// Read reads the objects of a cluster, with the rights of the client's user. The argument system is the namespace of
// the control plane. Secrets are not read (see ReadSecrets). If the user may not read an optional kind (Namespace,
// Node, Deployment, MutatingWebhookConfiguration, ConfigMap, CustomResourceDefinition), the reason is in Unread. Kinds
// that the cluster does not have are not an error. Errors: the user may not read a kind that is not optional, the API
// server fails, an object does not decode, or reading a kind takes longer than 2 min. With an error the Input is
// incomplete.
func Read(ctx context.Context, api *apiserver.Client, system string) (Input, error) {
	in := Input{Unread: map[string]string{}, Cluster: map[string]bool{}}
	for _, r := range listed {
		if err := in.list(ctx, api, r, r.path()); err != nil {
			return in, err
		}
	}
	maps := resource{kind{"", "ConfigMap"}, "v1", "configmaps"}
	if err := in.list(ctx, api, maps, "/api/v1/namespaces/"+url.PathEscape(system)+"/configmaps"); err != nil {
		return in, err
	}
	crds := resource{kind{"apiextensions.k8s.io", "CustomResourceDefinition"}, "v1", "customresourcedefinitions"}
	for _, name := range definitionNames() {
		if err := in.get(ctx, api, crds, crds.path()+"/"+name); err != nil {
			return in, err
		}
	}
	return in, nil
}

// definitionNames returns the names of the CustomResourceDefinitions that are checked (definitions).
func definitionNames() (names []string) {
	for _, name := range append(sorted(served), sorted(oldest)...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// list reads the objects of a kind.
func (in *Input) list(ctx context.Context, api *apiserver.Client, r resource, path string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	read := func(path, version string) error {
		return api.Each(ctx, path, func(raw json.RawMessage) error { return in.put(r.kind, version, raw) })
	}
	in.Cluster[r.kind.kind] = true
	err := read(path, r.version)
	if version := older[r.group]; apiserver.IsStatus(err, http.StatusNotFound) && version != "" && version != r.version {
		r.version = version
		err = read(r.path(), version)
	}
	return in.unreadable(r, err)
}

// get reads one object, if it exists.
func (in *Input) get(ctx context.Context, api *apiserver.Client, r resource, path string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	in.Cluster[r.kind.kind] = true
	var raw json.RawMessage
	err := api.Do(ctx, http.MethodGet, path, nil, &raw)
	if err == nil {
		err = in.put(r.kind, r.version, raw)
	}
	return in.unreadable(r, err)
}

// unreadable converts an error of the API server. It returns nil for a kind or object that does not exist. If the
// user may not read an optional kind, unreadable adds the kind to Unread and returns nil.
func (in *Input) unreadable(r resource, err error) error {
	var status *apiserver.Status
	forbidden := apiserver.IsStatus(err, http.StatusForbidden) && errors.As(err, &status)
	switch {
	case err == nil || apiserver.IsStatus(err, http.StatusNotFound):
		return nil
	case forbidden && slices.Contains(optional, r.kind.kind):
		in.Unread[r.kind.kind] = status.Message
		return nil
	case forbidden:
		return fmt.Errorf("%s of all namespaces must be readable, or references to them would be reported as missing: %w", r.plural, err)
	}
	return fmt.Errorf("read %s: %w", r.plural, err)
}

// put adds one object of a cluster. The first argument is the object's kind, since elements of lists do not contain
// their kind.
func (in *Input) put(of kind, version string, raw json.RawMessage) error {
	var head struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("an object of kind %s: %w", of.kind, err)
	}
	m := head.Metadata
	id := object.ID{Origin: Origin, Group: of.group, Kind: of.kind, Namespace: m.Namespace, Name: m.Name}
	in.Events = append(in.Events, object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: version,
		Created: m.CreationTimestamp.Time,
		Labels:  m.Labels, Annotations: m.Annotations, JSON: raw, UID: string(m.UID), Generation: m.Generation}})
	return nil
}

// ReadSecrets reads the Secrets that Gateways name, and adds them to the Input, which must be a result of Read. It
// reads them in the namespaces of the Pods that the Gateways select, or without such Pods in the Gateway's own
// namespace. It also reads the Certificates of cert-manager that these Secrets name. An object in the argument files
// counts instead of the cluster's object with the same ID. If the user may not read Secrets or Certificates, the reason
// is in Unread. Errors: the API server fails, or reading an object takes longer than 2 min.
func (in *Input) ReadSecrets(ctx context.Context, api *apiserver.Client, files Input, c Config) error {
	secrets := resource{kind{"", "Secret"}, "v1", "secrets"}
	in.Cluster["Secret"] = true
	for _, name := range secretNames(Over(*in, files), c) {
		if in.Unread["Secret"] != "" {
			return nil
		}
		namespace, short, _ := strings.Cut(name, "/")
		path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(short)
		if err := in.get(ctx, api, secrets, path); err != nil {
			return err
		}
	}
	return in.readCertificates(ctx, api)
}

// secretNames returns the names of the Secrets, as namespace/name, in order.
func secretNames(in Input, c Config) []string {
	some := Input{Cluster: in.Cluster}
	for _, e := range in.Events {
		if slices.Contains([]string{"Pod", "Gateway", "Deployment", "ConfigMap"}, e.ID.Kind) {
			some.Events = append(some.Events, e)
		}
	}
	w := newWorld(some, c)
	names := map[string]bool{}
	for _, r := range w.findRouters() {
		for _, g := range r.gateways {
			for _, server := range g.Spec.GetServers() {
				for _, name := range credentials(server) {
					names[r.namespace+"/"+name] = true
				}
			}
		}
	}
	return sorted(names)
}

// Over returns an input with the objects of both arguments. An object of the second input replaces the object of the
// first input with the same ID. Unread and Cluster are the maps of the first input, and Reported is nil.
func Over(cluster, files Input) Input {
	return Input{Events: slices.Concat(cluster.Events, files.Events), Problems: slices.Concat(cluster.Problems, files.Problems),
		Unread: cluster.Unread, Cluster: cluster.Cluster}
}
