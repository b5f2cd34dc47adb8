package main

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// problemsOf returns the problems that may explain a result, as "Kind namespace/name field: message", each once. They
// come from --config-dir, or from the control plane that was asked for the proxy. For a proxy from an Envoy or a dump,
// and if the control plane does not answer, the result is nil. The problems only explain a result, so a failure is not
// an error.
func (q *walks) problemsOf(cmd *cobra.Command, s *subject, of suspects) (lines []string) {
	asked := url.Values{"limit": {strconv.Itoa(fleetapi.MaxLimit)}}
	switch {
	case of.host != "" || len(of.missing) > 0:
	case len(of.objects) == 0:
		return nil
	default:
		asked = url.Values{"object": {strings.Join(of.objects, ",")}}
	}
	if s.asked != "" {
		from := q.source // a copy, because this source is closed below
		defer from.close()
		if answer, err := from.problems(cmd.Context(), asked); err == nil {
			return linesOf(answer.Items, of)
		}
	}
	var known []fleetapi.Problem
	add := func(object, field, message string) {
		known = append(known, fleetapi.Problem{Problem: inspect.Problem{Object: object, Field: field, Message: message}})
	}
	for _, p := range s.problems {
		add(p.ID.String(), p.Field, p.Message)
	}
	if s.planner != nil {
		for _, p := range s.planner.Problems() {
			add(p.Key.String(), p.Field, p.Full())
		}
	}
	return linesOf(known, of)
}

// linesOf returns the problems that the suspects blame, each once. If no problem names the host of a connection without
// a filter chain, it returns those of servers at the port that are not served: a message names at most some hosts.
func linesOf(all []fleetapi.Problem, of suspects) (lines []string) {
	for _, blame := range []func(object, message string) bool{of.blame, of.blamePort()} {
		for _, p := range all {
			line := strings.TrimSpace(p.Object+" "+p.Field) + ": " + p.Message
			if blame(p.Object, p.Message) && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 || of.host == "" {
			break
		}
	}
	return lines
}

// suspects select the problems that may explain a result.
type suspects struct {
	objects []string // "Kind namespace/name"
	host    string   // SNI of a connection that matches no filter chain; empty for other results
	port    uint32   // of the Pod, to which this connection goes
	missing []string // clusters that the proxy does not hold
}

// suspectsOf returns the suspects of a result for the request as it arrived at the proxy.
func suspectsOf(s *subject, r walk.Result, arrived walk.Request) suspects {
	of := suspects{objects: brokenObjects(s, r), port: arrived.Port}
	if r.Unmatched {
		of.host = arrived.Name
	}
	for _, to := range r.To {
		if to.Reach == walk.Missing {
			of.missing = append(of.missing, to.Cluster)
		}
	}
	return of
}

// blame reports whether a problem of an object may explain the result. A Gateway or a VirtualService explains a
// connection without a filter chain if the message names the host. A VirtualService
// explains a missing cluster if the message names its host, and no other subset or port.
func (of suspects) blame(object, message string) bool {
	if slices.Contains(of.objects, object) {
		return true
	}
	kind, _, _ := strings.Cut(object, " ")
	if kind != "Gateway" && kind != "VirtualService" {
		return false
	}
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(` ,;:"()`, r) })
	names := func(text string) bool {
		return slices.ContainsFunc(words, func(word string) bool {
			word = word[strings.LastIndexByte(word, '/')+1:]
			return word == text || model.Covers(word, text)
		})
	}
	if of.host != "" && names(of.host) {
		return true
	}
	return kind == "VirtualService" && slices.ContainsFunc(of.missing, func(cluster string) bool {
		_, port, subset, host, ok := xds.ParseCluster(cluster)
		switch {
		case !ok || !names(host):
			return false
		case subset != "" || names("subset"):
			return names(subset)
		}
		return !names("port") || names(fmt.Sprint(port))
	})
}

// blamePort returns a function that reports whether a problem is that a server at the port of the connection is not
// served.
func (of suspects) blamePort() func(object, message string) bool {
	translated := fmt.Sprintf("(%d of the Pod)", of.port)
	bound := regexp.MustCompile(fmt.Sprintf(`\bport %d\b( [^(]|[^ ]|$)`, of.port))
	return func(object, message string) bool {
		return strings.HasPrefix(object, "Gateway ") && strings.Contains(message, "this server is not served") &&
			(strings.Contains(message, translated) || bound.MatchString(message))
	}
}

// brokenObjects returns the objects whose problems may explain a result, as "Kind namespace/name". They are the
// policies that cannot be enforced, and the Secrets and ConfigMaps that could provide the secrets which the proxy
// lacks.
func brokenObjects(s *subject, r walk.Result) (objects []string) {
	if r.Refusal != nil {
		objects = append(objects, r.Refusal.Closing...)
	}
	for _, resource := range r.Lacks {
		ref, isMap := access.ConfigMap(resource)
		if isMap {
			objects = append(objects, "ConfigMap "+ref.Namespace+"/"+ref.Name)
			continue
		}
		ref, ok := access.ParseName(resource)
		if namespace := cmp.Or(ref.Namespace, s.namespace); ok && namespace != "" {
			objects = append(objects, "Secret "+namespace+"/"+ref.Name)
			if short, is := strings.CutSuffix(ref.Name, model.AuthoritiesSuffix); is {
				objects = append(objects, "Secret "+namespace+"/"+short)
			}
		}
	}
	return objects
}
