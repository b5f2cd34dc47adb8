// Package remains lists the objects that uninstalling a control plane's chart leaves behind, and those that must be
// deleted before: its webhook configurations, because the API server would refuse Pods and objects while no webhook
// answers.
//
// Owns: the list of these objects, and the order of their deletion.
// Reads: the API server.
// Never: deletes an object that it has not listed before; deletes a definition of a kind with objects, unless it was
// named.
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

// Labels of the chart's objects (deploy/chart/templates/_names.tpl).
const (
	nameLabel = "app.kubernetes.io/name"
	chartName = "navarch"
)

// Object is an existing object.
type Object struct {
	Kind, Namespace, Name string
	Holds                 string // the content that is lost with it
	path                  string
	uid                   string // distinguishes it from a later object of the same name
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Cluster is the cluster and the control plane to search.
type Cluster struct {
	API       *apiserver.Client
	Namespace string // of the control plane
	Revision  string // of webhooks; empty: those of our charts
}

// meta is the used part of any object.
type meta struct {
	Metadata struct {
		Name, Namespace, UID string
		Labels               map[string]string
	}
}

// list reads the objects of a kind below a path that about describes.
func (c Cluster) list(ctx context.Context, kind, path string, about func(meta) string) (found []Object, err error) {
	base, _, _ := strings.Cut(path, "?")
	err = c.API.Each(ctx, path, func(raw json.RawMessage) error {
		var m meta
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		holds := about(m)
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

// holds maps kinds of webhook configurations to what is lost with them.
var holds = map[string]string{hooks.Mutating: "Pods get proxies", hooks.Validating: "wrong objects are refused"}

// Webhooks returns the configurations that lead to the control plane's namespace. With a revision these are all of that
// revision. Otherwise ours are those of our charts, and those that lead to the same Services (revision tags); others
// are the rest, for instance those of an istiod in the same namespace. Errors are the API server's.
func (c Cluster) Webhooks(ctx context.Context) (ours, others []Object, err error) {
	all, err := hooks.OfRevisions(ctx, c.API)
	if err != nil {
		return nil, nil, err
	}
	services := map[string]bool{} // Services of our configurations in the namespace
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

// services returns the Services of the control plane's namespace that answer a configuration's webhooks.
func (c Cluster) services(of hooks.Configuration) (names []string) {
	for _, w := range of.Webhooks {
		if w.LeadsTo(c.Namespace) {
			names = append(names, w.Client.Service.Name)
		}
	}
	return names
}

// Running lists the control plane's remaining workloads, which still need the kept objects. Errors are the API
// server's, and name the request.
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

// release names an object's Helm release.
func release(labels map[string]string) string {
	if name := labels["app.kubernetes.io/instance"]; name != "" {
		return " (release " + name + ")"
	}
	return ""
}

// etcdName is the prefix of the names of the chart's own etcd.
const etcdName = "navarch-etcd"

// secrets maps the Secrets that uninstalling keeps to what is lost with them.
var secrets = map[string]string{
	"cacerts":         "your own CA: certificates that it signed stay good, and no new ones are signed",
	"istio-ca-secret": "the root that istiod made",
	"navarch-kek":     "the key encryption key: without it nobody opens the mesh's CA keys and the Secrets in etcd, nor in its backups",
}

// Kept returns the objects that uninstalling the chart keeps, without definitions: keys of the CA, etcd's certificates
// and volumes, and the leader's objects in namespaces. Errors are the API server's.
func (c Cluster) Kept(ctx context.Context) ([]Object, error) {
	in := "/api/v1/namespaces/" + url.PathEscape(c.Namespace)
	// a Helm release may have a megabyte
	kept, err := c.list(ctx, "Secret", in+"/secrets?fieldSelector=type!%3Dhelm.sh/release.v1", func(m meta) string {
		if strings.HasPrefix(m.Metadata.Name, etcdName) {
			return "etcd's certificates"
		}
		if m.Metadata.Labels[nameLabel] == chartName {
			return cmp.Or(secrets[m.Metadata.Name], secrets["navarch-kek"]) // its name is from the values
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

// plurals are Istio's kinds, by group.
var plurals = map[string][]string{
	"networking.istio.io": {"destinationrules", "envoyfilters",
		"gateways", "proxyconfigs", "serviceentries", "sidecars", "virtualservices", "workloadentries", "workloadgroups"},
	"security.istio.io":   {"authorizationpolicies", "peerauthentications", "requestauthentications"},
	"telemetry.istio.io":  {"telemetries"},
	"extensions.istio.io": {"trafficextensions", "wasmplugins"},
}

// Definitions returns the CustomResourceDefinitions of Istio's kinds, with the number of their objects. They are read
// one by one, since all definitions of a cluster have many megabytes. Errors are the API server's.
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

// definition reads one definition; nil: it does not exist.
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

// count returns the number of objects below a path, by reading one of them.
func (c Cluster) count(ctx context.Context, path string) (int, error) {
	var some struct {
		Metadata struct{ RemainingItemCount int }
		Items    []meta
	}
	err := c.API.Do(ctx, http.MethodGet, path+"?limit=1", nil, &some)
	return len(some.Items) + some.Metadata.RemainingItemCount, err
}

// Empty reports whether a definition has no objects.
func (o Object) Empty() bool { return o.Holds == "0 objects" }

// Delete deletes objects one after the other, if their uids are those that were listed. A missing object is not an
// error. It stops at the first error, which names the object.
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
