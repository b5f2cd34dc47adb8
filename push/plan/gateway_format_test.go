package plan

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/model"
)

// formats returns format strings that a check accepts: all commands with all kinds of arguments, and random formats of
// times.
func formats(t *testing.T, check func(string) error) (out []string) {
	t.Helper()
	source, err := os.ReadFile("../../store/model/format.go")
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"", "()", "(x)", "(:path)", "(:PATH?x-a_b)", "(x?)", "(a b)", "(?)", "(::a)", "(a:b)", "(a:b:c)", "(a:b:ms)",
		"(a:PLAIN)", "(a:TYPED)",
		"(a:FIELD:b)", "(a:FIELD)", "([\"a\"])", "(%)", "(%%)", "(%Y/%m/%dT%H:%M:%S%z %s.%3f)", "(%n)", "(%En)",
		"(%3n)", "(%_n)", "(%f)", "(%E4Y%E*S)",
		"(CAMEL_STRING)", "(NUMBER)", "(WQ)", "(NQ:ORIG)", "(WQ:ORIG_OR_PATH)", "(SNI_ONLY)", "(SNI_FIRST:HOST)", "(HOST_FIRST:ORIG)",
		"(SNI_FIRST:ORIG_OR_HOST)", "(ALLOW_WHITESPACES)", "(ROUTE:istio:config)", "(UPSTREAM_HOST:a)", "(request.headers['a'])",
		"(request.in)", "(xds.null['x'])",
		"(VIRTUAL_HOST:a)", "(CLUSTER:a)", "(LISTENER:a)", "(DYNAMIC:a:b)"}
	seen := map[string]bool{}
	for _, name := range regexp.MustCompile(`[A-Z][A-Z0-9_]+`).FindAllString(string(source), -1) {
		for _, argument := range arguments {
			for _, length := range []string{"", ":999999999"} {
				if f := "%" + name + argument + length + "%"; !seen[f] && check(f) == nil {
					seen[f], out = true, append(out, f)
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		text := ""
		for range 1 + random.IntN(8) {
			text += string("%%%YmdnEEO13*f_-^#0:zt"[random.IntN(22)])
		}
		if f := "%START_TIME(" + text + ")%"; check(f) == nil {
			out = append(out, f)
		}
	}
	return append(out, "100%%", "%%REQ(x)%%", "a%%%REQ(x)%%PROTOCOL%")
}

// A tenant's header values do not make Envoy refuse the routes that a gateway has for others: Envoy accepts all format
// strings that are sent, and the others are problems. None reads the environment of the gateway.
// Promise: security-gateways.md#make-a-gateway-fail
func TestFormatsThatEnvoyRefuses(t *testing.T) {
	refused := []string{"50%", "%", "%%%", "%NO_SUCH_COMMAND%", "%FILE_CONTENT(/etc/passwd)%", "%REQ_WITHOUT_QUERY(x)%", "%SECRET(x)%",
		"%REQ()%",
		"%REQ(a b)%", "%REQ(X?Y?Z)%", "%PROTOCOL(x)%", "%BYTES_RECEIVED:9%", "%DYNAMIC_METADATA()%", "%FILTER_STATE()%", "%METADATA(x)%",
		"%COMMON_DURATION(x)%", "%REQ(x):99999999999999999999%", "%START_TIME(%n)%", "%ENVIRONMENT(HOME)%", "x%%%ENVIRONMENT(HOME):9%",
		"%REQ(a)%%",
		"%CEL(1)%", "%CEL(xds.node.id)%", "%Req(x)%"}
	headers := formats(t, model.CheckHeaderFormat)
	tags := slices.DeleteFunc(formats(t, model.CheckFormat), func(f string) bool { return model.CheckHeaderFormat(f) == nil })
	for _, want := range []string{"%REQ(:PATH?x-a_b)%", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "%START_TIME(%Y/%m/%dT%H:%M:%S%z %s.%3f)%",
		"%DYNAMIC_METADATA(a:b:c)%", "%FILTER_STATE(a:PLAIN)%", "%HOSTNAME%", "%GRPC_STATUS(NUMBER)%"} {
		if !slices.Contains(headers, want) {
			t.Errorf("%s is refused", want)
		}
	}
	rules, values := "", slices.Concat(refused, headers)
	for i := range tags {
		values = append(values, fmt.Sprintf("tag-%d-", i))
	}
	for i, value := range values {
		rules += fmt.Sprintf("- {match: [{uri: {exact: /%d}}], headers: {request: {set: {x-a: '%s'}}}, directResponse: {status: 200}}\n", i,
			strings.ReplaceAll(value, "'", "''"))
	}
	p, _, gw := gatewayPlanner(
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		rec(t, model.KindVirtualService, "evil/v@2", "hosts: [evil.test]\ngateways: [edge/front]\nhttp:\n"+rules))
	sent := fold(t, gw.Set())
	for _, value := range append(refused[3:], "ENVIRONMENT") {
		if bytes.Contains(sent, []byte(value)) {
			t.Errorf("%s is sent", value)
		}
	}
	if !bytes.Contains(sent, []byte("%HOSTNAME%")) || !bytes.Contains(sent, []byte("tag-0-")) {
		t.Fatal("the rules are not there")
	}
	for i, tag := range tags {
		sent = bytes.ReplaceAll(sent, fmt.Appendf(nil, "tag-%d-", i), []byte(strings.ReplaceAll(tag, `"`, `\"`)))
	}
	if complaint := envoytest.Validate(envoytest.Binary(t), envoytest.File(t, envoytest.JSON(t, sent))); complaint != "" {
		t.Errorf("Envoy refuses the routes of all: %s", complaint)
	}
	problems := problemTexts(p)
	for i := range refused {
		if want := fmt.Sprintf("VirtualService evil/v: spec.http[%d].headers: x-a: ", i); !strings.Contains(problems, want) {
			t.Errorf("no problem %q in %.2000s", want, problems)
		}
	}
}
