package plan

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/model"
)

// A tenant's regular expressions do not make Envoy refuse the routes that a gateway has for others: names of classes
// that Go alone knows, and programs above the bound of the bootstrap. Envoy takes all that is not refused.
// Promise: security-gateways.md#make-a-gateway-fail
func TestRegexesThatEnvoyRefuses(t *testing.T) {
	const runtime = `{"layered_runtime": {"layers": [{"name": "agent", "static_layer": {"re2.max_program_size.error_level": 32768}}]}, `
	refused := []string{`\p{Letter}`, `\p{greek}`, `\p{Cn}`,
		strings.Repeat(`\pL{1000}`, 100), strings.Repeat(`[^a]{1000}`, 90), strings.Repeat(`a{1000}`, 140)}
	names := slices.Concat(slices.Collect(maps.Keys(unicode.Categories)), slices.Collect(maps.Keys(unicode.Scripts)),
		slices.Collect(maps.Keys(unicode.CategoryAliases)), []string{"Any", "ASCII", "Assigned"})
	for _, name := range names {
		refused = append(refused, `\p{`+name+`}`)
	}
	rules := ""
	for _, pattern := range slices.Concat(refused, []string{`.{0,1000}`, strings.Repeat(`a{1000}`, 9), `(?i)\p{L}{20}`}) {
		rules += fmt.Sprintf("- {match: [{uri: {regex: '%s'}}], directResponse: {status: 200}}\n", pattern)
	}
	p, _, gw := gatewayPlanner(
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		rec(t, model.KindVirtualService, "shop/v@1", "{hosts: [shop.test], gateways: [edge/front], http: [{directResponse: {status: 200}}]}"),
		rec(t, model.KindVirtualService, "evil/v@2", "hosts: [evil.test]\ngateways: [edge/front]\nhttp:\n"+rules))
	with := append([]byte(runtime), bytes.TrimPrefix(fold(t, gw.Set()), []byte("{"))...)
	if complaint := envoytest.Validate(envoytest.Binary(t), envoytest.File(t, envoytest.JSON(t, with))); complaint != "" {
		t.Errorf("Envoy refuses the routes of all: %s", complaint)
	}
	for _, want := range []string{`http[0].match[0]`, "VirtualService evil/v"} {
		if got := problemTexts(p); !strings.Contains(got, want) {
			t.Errorf("problems %.2000s\nwant %s", got, want)
		}
	}
}
