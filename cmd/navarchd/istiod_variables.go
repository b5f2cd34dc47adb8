package main

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"navarch.io/navarch/store/obs"
)

// istiodPrefixes are the name prefixes of istiod's own environment variables. Variables without such a prefix may
// belong to other programs.
var istiodPrefixes = []string{"PILOT_", "ENABLE_", "ISTIO_"}

// serviceLink matches a variable that the kubelet sets for each Service of a Pod's namespace, such as
// istio-ingressgateway (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unread returns the sorted names of istiod's variables that have a value in environ ("NAME=value") but that navarchd
// does not read. A variable counts as istiod's if its name has one of istiodPrefixes, unless it matches serviceLink.
func (e *environment) unread(environ []string) []string {
	out := map[string]bool{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		istiods := slices.ContainsFunc(istiodPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if istiods && value != "" && !e.reads[name] && !serviceLink.MatchString(name) {
			out[name] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// warnUnread logs one line for each of istiod's variables that is set and has no effect.
func (e *environment) warnUnread(environ []string, log *slog.Logger) {
	for _, name := range e.unread(environ) {
		log.Warn("an environment variable of istiod is set but has no effect on navarchd: navarchctl migrate explains the variable",
			obs.KeyName, name)
	}
}
