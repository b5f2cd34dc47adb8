package normal

import (
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// oneLine reports an error if a text has control characters. Envoy copies the text into a header or a line of its log,
// where such characters would begin another line, or refuses configuration with them.
func (r *report) oneLine(at, text string) {
	if !model.FitsLine(text) {
		r.errorf(at, "%q has control characters", text)
	}
}

// checkCookie validates the cookie by whose value requests are spread. Envoy writes name, path and attributes unchanged
// into the header Set-Cookie of responses.
func checkCookie(r *report, at string, c *networkingv1.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) {
	if c.Name == "" {
		r.requiredf(at+".name", "must not be empty")
	}
	r.oneLine(at+".name", c.Name)
	r.oneLine(at+".path", c.Path)
	for i, a := range c.Attributes {
		r.oneLine(fmt.Sprintf("%s.attributes[%d].name", at, i), a.GetName())
		r.oneLine(fmt.Sprintf("%s.attributes[%d].value", at, i), a.GetValue())
	}
	r.duration1ms(at+".ttl", c.Ttl, true)
}
