// Package remains lists and deletes the objects that a Helm uninstallation of a control plane leaves behind. It also
// lists the webhook configurations, which have to be deleted before the uninstallation. If they remained, the API
// server would refuse Pods and objects, because no webhook answers.
//
// Owns: the list of these objects, and the order of their deletion.
// Reads: the API server.
// Never: deletes an object that it has not listed before.
package remains

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"navarch.io/navarch/cmd/navarchctl/hooks"
	"navarch.io/navarch/store/apiserver"
)

// Label of the chart's objects, and its value (deploy/chart/templates/_names.tpl).
const (
	nameLabel = "app.kubernetes.io/name"
	chartName = "navarch"
)

// Object identifies an object that the API server had when it was listed.
type Object struct {
	// Namespace is empty for a cluster-wide object.
	Kind, Namespace, Name string
	// Holds describes the loss that the deletion causes, for people. For a CustomResourceDefinition it is the number of
	// objects.
	Holds string
	path  string
	uid   string // distinguishes the object from a later one with the same name
}

// String returns "Kind namespace/name", or "Kind name" without a namespace.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Cluster names the cluster and the control plane whose objects are listed. Its methods block on requests to the API
// server.
type Cluster struct {
	API       *apiserver.Client
	Namespace string // namespace of the control plane
	Revision  string // selects webhook configurations; empty: those of Navarch's charts
}

// meta decodes the name, namespace, uid and labels of any object.
type meta struct {
	Metadata struct {
		Name, Namespace, UID string
		Labels               map[string]string
	}
}

// list returns the objects at a path, sorted. The function describe returns the loss that the deletion of an object
// causes. If it returns an empty text, the object is skipped.
func (c Cluster) list(ctx context.Context, kind, path string, describe func(meta) string) (found []Object, err error) {
	base, _, _ := strings.Cut(path, "?")
	err = c.API.Each(ctx, path, func(raw json.RawMessage) error {
		var m meta
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		holds := describe(m)
		if holds == "" {
			return nil
		}
		at := base + "/" + url.PathEscape(m.Metadata.Name)
		if !strings.Contains(base, "/namespaces/") && m.Metadata.Namespace != "" {
			root, plural, _ := strings.Cut(base, "/v1/")
			at = root + "/v1/namespaces/" + url.PathEscape(m.Metadata.Namespace) + "/" + plural + "/" + url.PathEscape(m.Metadata.Name)
		}
		found = append(found, Object{Kind: kind, Namespace: m.Metadata.Namespace,
			Name: m.Metadata.Name, Holds: holds, path: at, uid: m.Metadata.UID})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	slices.SortFunc(found, func(a, b Object) int { return cmp.Compare(a.String(), b.String()) })
	return found, nil
}

// holds maps kinds of webhook configurations to the function that is lost with them.
var holds = map[string]string{hooks.Mutating: "Pods get proxies", hooks.Validating: "wrong objects are refused"}

// Webhooks returns the webhook configurations that have a revision label and call Services in the control plane's
// namespace. The list ours has the configurations of c.Revision. If c.Revision is empty, it has the configurations that
// call the same Service as a configuration of Navarch's charts, also if they are those of a revision tag. The list
// others has the rest, for example of an istiod in the same namespace. In both lists, mutating configurations come
// first. Errors are those of the API server or its client.
func (c Cluster) Webhooks(ctx context.Context) (ours, others []Object, err error) {
	all, err := hooks.OfRevisions(ctx, c.API)
	if err != nil {
		return nil, nil, err
	}
	services := map[string]bool{} // Services that the charts' configurations call
	for _, one := range all {
		if one.Meta.Labels[nameLabel] == chartName {
			for _, s := range c.services(one) {
				services[s] = true
			}
		}
	}
	for _, one := range all {
		leads := c.services(one)
		if len(leads) == 0 {
			continue
		}
		o := Object{Kind: one.Kind, Name: one.Meta.Name, Holds: holds[one.Kind] +
			", revision " + one.Revision(), path: one.Path(), uid: string(one.Meta.UID)}
		if c.Revision == one.Revision() || c.Revision == "" && slices.ContainsFunc(leads, func(s string) bool { return services[s] }) {
			ours = append(ours, o)
		} else {
			others = append(others, o)
		}
	}
	return ours, others, nil
}

// services returns the names of the Services in the control plane's namespace that a configuration's webhooks call.
func (c Cluster) services(of hooks.Configuration) (names []string) {
	for _, w := range of.Webhooks {
		if w.LeadsTo(c.Namespace) {
			names = append(names, w.Client.Service.Name)
		}
	}
	return names
}

// Running lists the existing workloads of the control plane that need the objects of Kept. These workloads are the
// Deployments of navarchd and of an istiod, and the StatefulSets of the chart's etcd. Elements are "Kind name", with
// the Helm release if it is known; nil without such workloads. Errors are the API server's.
func (c Cluster) Running(ctx context.Context) (all []string, err error) {
	in := "/apis/apps/v1/namespaces/" + url.PathEscape(c.Namespace)
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	if err := c.API.Do(ctx, http.MethodGet, in+"/deployments", nil, &deployments); err != nil {
		return nil, fmt.Errorf("Deployments of %s: %w", c.Namespace, err)
	}
	if err := c.API.Do(ctx, http.MethodGet, in+"/statefulsets", nil, &sets); err != nil {
		return nil, fmt.Errorf("StatefulSets of %s: %w", c.Namespace, err)
	}
	for _, d := range deployments.Items {
		if labels := d.Spec.Template.Labels; labels["app"] == "istiod" || labels[nameLabel] == "navarchd" {
			all = append(all, "Deployment "+d.Name+release(d.Labels))
		}
	}
	for _, s := range sets.Items {
		if strings.HasPrefix(s.Name, etcdName) {
			all = append(all, "StatefulSet "+s.Name+release(s.Labels))
		}
	}
	return all, nil
}

// release returns " (release NAME)" from an object's labels. If the labels name no release, it returns an empty text.
func release(labels map[string]string) string {
	if name := labels["app.kubernetes.io/instance"]; name != "" {
		return " (release " + name + ")"
	}
	return ""
}

// etcdName is the name prefix of the objects that the chart makes for its own etcd.
const etcdName = "navarch-etcd"

// secrets maps the names of Secrets that an uninstallation keeps to the loss that their deletion causes.
var secrets = map[string]string{
	"cacerts":         "your own CA: certificates that it signed stay good, and no new ones are signed",
	"istio-ca-secret": "the root that istiod made",
	"navarch-kek":     "the key encryption key: without it, CA keys and Secrets in etcd and in its backups cannot be decrypted",
}

// Kept returns the objects that an uninstallation of the chart keeps, except CustomResourceDefinitions. Secrets come
// first. They contain the user's CA, istiod's root, the key encryption key or etcd's certificates. The claims for
// etcd's volumes follow. ConfigMaps come last. They contain the mesh's roots or revocation lists, and may be in any
// namespace. Errors are those of the API server or its client, with the kind.
func (c Cluster) Kept(ctx context.Context) ([]Object, error) {
	in := "/api/v1/namespaces/" + url.PathEscape(c.Namespace)
	// the selector excludes the Secrets of Helm, each of which may have a megabyte
	kept, err := c.list(ctx, "Secret", in+"/secrets?fieldSelector=type!%3Dhelm.sh/release.v1", func(m meta) string {
		if strings.HasPrefix(m.Metadata.Name, etcdName) {
			return "etcd's certificates"
		}
		if m.Metadata.Labels[nameLabel] == chartName {
			return cmp.Or(secrets[m.Metadata.Name], secrets["navarch-kek"]) // the chart's values may rename navarch-kek
		}
		return secrets[m.Metadata.Name]
	})
	if err != nil {
		return nil, err
	}
	volumes, err := c.list(ctx, "PersistentVolumeClaim", in+"/persistentvolumeclaims", func(m meta) string {
		switch name := m.Metadata.Name; {
		case strings.HasPrefix(name, "data-"+etcdName):
			return "etcd's data: the configuration, the CA's keys, its journal"
		case strings.HasPrefix(name, etcdName) && strings.HasSuffix(name, "-snapshots"):
			return "etcd's snapshots"
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	kept = append(kept, volumes...)
	for _, of := range []struct{ name, holds string }{{"istio-ca-root-cert", "the mesh's roots, for agents of the namespace"},
		{"istio-ca-crl", "revocation lists, for agents of the namespace"}} {
		written, err := c.list(ctx, "ConfigMap", "/api/v1/configmaps?fieldSelector=metadata.name%3D"+of.name, func(m meta) string {
			if m.Metadata.Name != of.name {
				return ""
			}
			return of.holds
		})
		if err != nil {
			return nil, err
		}
		kept = append(kept, written...)
	}
	return kept, nil
}

// plurals has the resource names of Istio's kinds by API group.
var plurals = map[string][]string{
	"networking.istio.io": {"destinationrules", "envoyfilters",
		"gateways", "proxyconfigs", "serviceentries", "sidecars", "virtualservices", "workloadentries", "workloadgroups"},
	"security.istio.io":   {"authorizationpolicies", "peerauthentications", "requestauthentications"},
	"telemetry.istio.io":  {"telemetries"},
	"extensions.istio.io": {"trafficextensions", "wasmplugins"},
}

// Definitions returns the existing CustomResourceDefinitions of Istio's kinds, sorted by name. Object.Holds states the
// number of objects, or that no version is served. Definitions requests each one by name, since all definitions of a
// cluster may have many megabytes. Errors are those of the API server or its client.
func (c Cluster) Definitions(ctx context.Context) (found []Object, err error) {
	for group, all := range plurals {
		for _, plural := range all {
			o, err := c.definition(ctx, plural+"."+group, group, plural)
			if err != nil {
				return nil, err
			}
			if o != nil {
				found = append(found, *o)
			}
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// definition returns one definition; nil if it does not exist.
func (c Cluster) definition(ctx context.Context, name, group, plural string) (*Object, error) {
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + url.PathEscape(name)
	var d struct {
		meta
		Spec struct {
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	err := c.API.Do(ctx, http.MethodGet, path, nil, &d)
	if apiserver.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("CustomResourceDefinition %s: %w", name, err)
	}
	o := &Object{Kind: "CustomResourceDefinition", Name: name,
		Holds: "objects that are not known, since no version is served", path: path, uid: d.Metadata.UID}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		n, err := c.count(ctx, "/apis/"+group+"/"+v.Name+"/"+plural)
		if err != nil {
			return nil, fmt.Errorf("objects of %s: %w", name, err)
		}
		o.Holds = strconv.Itoa(n) + " objects"
		break
	}
	return o, nil
}

// count returns the number of objects at a path, from a list with limit 1.
func (c Cluster) count(ctx context.Context, path string) (int, error) {
	var some struct {
		Metadata struct{ RemainingItemCount int }
		Items    []meta
	}
	err := c.API.Do(ctx, http.MethodGet, path+"?limit=1", nil, &some)
	return len(some.Items) + some.Metadata.RemainingItemCount, err
}

// Empty reports whether an object from Definitions is known to have no objects. It is false if no version is served.
func (o Object) Empty() bool { return o.Holds == "0 objects" }

// Delete deletes objects one after the other. It calls the function gone after each deletion. An object that no longer
// exists counts as deleted. Delete stops at the first error, which names the object. Errors: the object's uid has
// changed since the listing, the object was listed without a uid, or an error of the API server or its client.
func (c Cluster) Delete(ctx context.Context, all []Object, gone func(Object)) error {
	for _, o := range all {
		if o.uid == "" {
			return errors.New(o.String() + ": it has no uid")
		}
		only := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": o.uid}}
		if err := c.API.Do(ctx, http.MethodDelete, o.path, only, nil); err != nil && !apiserver.IsStatus(err, http.StatusNotFound) {
			return fmt.Errorf("%s: %w", o, err)
		}
		gone(o)
	}
	return nil
}
