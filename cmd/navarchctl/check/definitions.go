package check

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"navarch.io/navarch/store/apiserver"
)

// kinds lists the kinds of Istio that have an effect in Navarch, by group. The field versions lists the versions that
// Navarch reads, newest first.
var kinds = []struct {
	group     string
	versions  []string
	resources []string
}{
	{"networking.istio.io", []string{"v1", "v1beta1", "v1alpha3"},
		[]string{"destinationrules", "envoyfilters", "gateways", "serviceentries",
			"sidecars", "virtualservices", "workloadentries", "workloadgroups"}},
	{"security.istio.io", []string{"v1", "v1beta1"}, []string{"authorizationpolicies", "peerauthentications", "requestauthentications"}},
	{"telemetry.istio.io", []string{"v1", "v1alpha1"}, []string{"telemetries"}},
	{"extensions.istio.io", []string{"v1alpha1"}, []string{"trafficextensions", "wasmplugins"}},
}

// definitions checks whether the API server serves each entry of the list kinds in a version that Navarch reads.
func (k *checker) definitions(ctx context.Context) {
	for _, of := range kinds {
		check := NameDefinitions.of("definitions of " + of.group)
		served, err := k.served(ctx, of.group, of.versions)
		if err != nil {
			k.cannot(check, err)
			continue
		}
		var missing, found []string
		for _, resource := range of.resources {
			if version := served[resource]; version == "" {
				missing = append(missing, resource)
			} else if !slices.Contains(found, version) {
				found = append(found, version)
			}
		}
		switch check = check.count(len(missing)); {
		case len(missing) == 0:
			k.add(check, OK, "all kinds are served, as "+strings.Join(found, ", "), "")
		case len(missing) == len(of.resources) && k.Pre:
			k.add(check, OK, "none is there yet", "let the chart install them (crds.install=true)")
		default:
			k.add(check, Warning, "not served in "+strings.Join(of.versions, ", ")+": "+strings.Join(missing, ", "),
				"install Istio's CustomResourceDefinitions (the chart's crds.install): objects of these kinds are read as soon as they are served")
		}
	}
}

// served returns the newest served version of each resource of a group, among the given versions. Resources that are
// not served are absent. The error is that of the API server.
func (k *checker) served(ctx context.Context, group string, versions []string) (map[string]string, error) {
	served := map[string]string{}
	for _, version := range versions {
		var list struct {
			Resources []struct{ Name string }
		}
		err := k.get(ctx, "/apis/"+group+"/"+version, &list)
		if apiserver.IsStatus(err, http.StatusNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, r := range list.Resources {
			if served[r.Name] == "" {
				served[r.Name] = version
			}
		}
	}
	return served, nil
}
