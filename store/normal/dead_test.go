package normal

import "testing"

// Each condition that no traffic meets has a warning at its field, and its near misses cause no warning.
func TestDeadConditions(t *testing.T) {
	const to, mesh, front = "route: [{destination: {host: a}}]}", "{hosts: [a.com], ", "{hosts: [a.com], gateways: [front], "
	http := func(of, match string) string { return of + "http: [{match: [" + match + "], " + to + "]}" }
	layer4 := func(of, kind, match string) string { return of + kind + ": [{match: [" + match + "], " + to + "]}" }
	const at, labels = "warning spec.http[0].match[0]", "sourceLabels: only gateways read the match"
	for spec, want := range map[string]string{
		http(front, "{gateways: [back]}"):                                                                 at + `.gateways: spec.gateways has no "shop/back" nor another name of the match: the match gets nothing`,
		http(front, "{gateways: [mesh]}"):                                                                 at + `.gateways: spec.gateways has no "mesh" nor`,
		http(front, "{gateways: [front, mesh]}"):                                                          at + `.gateways: spec.gateways has no "mesh": the name has no effect here`,
		http(mesh, "{gateways: [front]}"):                                                                 at + `.gateways: spec.gateways has no "shop/front" nor`,
		http(front, "{gateways: [shop/front]}"):                                                           "",
		http(mesh, "{gateways: [mesh]}"):                                                                  "",
		http("{", "{gateways: [back]}"):                                                                   "", // a delegate
		layer4(front, "tcp", "{gateways: [mesh]}"):                                                        `warning spec.tcp[0].match[0].gateways: spec.gateways has no "mesh" nor`,
		layer4(front, "tls", "{sniHosts: [a.com], sourceLabels: {app: a}}"):                               "warning spec.tls[0].match[0]." + labels,
		http(front, "{sourceLabels: {app: a}}"):                                                           at + "." + labels,
		http(mesh, "{sourceLabels: {app: a}}"):                                                            "",
		http("{hosts: [a.com], gateways: [front, mesh], ", "{sourceLabels: {app: a}}"):                    "",
		http("{hosts: [a.com], gateways: [front, mesh], ", "{gateways: [front], sourceLabels: {app: a}}"): at + "." + labels,
		http("{", "{sourceLabels: {app: a}}"):                                                             "",
		http(mesh, "{uri: {exact: '/a?b=c'}}"):                                                            at + `.uri.exact: "/a?b=c": paths are compared without the query`,
		http(mesh, "{uri: {prefix: '/a?'}}"):                                                              at + `.uri.prefix: "/a?": paths are compared without the query`,
		http(mesh, "{uri: {regex: '/a?'}}"):                                                               "",
		http(mesh, "{uri: {exact: a}}"):                                                                   at + `.uri.exact: "a": paths begin with /, so no request matches`,
		http(mesh, "{uri: {exact: ''}}"):                                                                  at + `.uri.exact: "": paths begin with /`,
		http(mesh, "{uri: {prefix: a/}}"):                                                                 at + `.uri.prefix: "a/": paths begin with /`,
		http(mesh, "{uri: {exact: '*'}}"):                                                                 "",
		http(mesh, "{uri: {prefix: ''}}"):                                                                 "",
		http(mesh, "{uri: {prefix: /a}}"):                                                                 "",
		http(mesh, "{method: {exact: get}}"):                                                              at + `.method.exact: "get": methods are compared by case, and clients send "GET"`,
		http(mesh, "{method: {exact: GET}}"):                                                              "",
		http(mesh, "{method: {exact: purge}}"):                                                            "",
		http(mesh, "{method: {regex: get}}"):                                                              "",
		http(mesh, "{headers: {Host: {exact: a.com}, host: {exact: a.com}}}"):                             "",
	} {
		r := testNormal.Object(read(t, istio("VirtualService", spec)), &fake{})
		var wants []string
		if want != "" {
			wants = append(wants, want)
		}
		if wantProblems(t, r.Problems, wants...); t.Failed() {
			t.Fatal(spec)
		}
	}
}
