package model

import "testing"

// A message names an object only to readers of its namespace, and of the namespaces that it is exported to.
func TestMessagesHidePrivateObjects(t *testing.T) {
	key := Key{Kind: KindVirtualService, Namespace: "victim", Name: "web"}
	for _, c := range []struct {
		exportTo     []string
		shown, whole string
	}{
		{nil, "port 80 is that of VirtualService victim/web", ""},
		{[]string{"*"}, "port 80 is that of VirtualService victim/web", ""},
		{[]string{"edge", "shop"}, "port 80 is that of VirtualService victim/web", ""},
		{[]string{"victim"}, "port 80 is that of an object of another namespace", "port 80 is that of VirtualService victim/web"},
		{[]string{"~"}, "port 80 is that of an object of another namespace", "port 80 is that of VirtualService victim/web"},
	} {
		shown, whole := Messages("shop", "port %d is that of %v", 80, Other{Key: key, ExportTo: c.exportTo})
		if shown != c.shown || whole != c.whole {
			t.Errorf("%v: %q and %q", c.exportTo, shown, whole)
		}
		if shown, whole = Messages("victim", "%v", Other{Key: key, ExportTo: c.exportTo}); shown != key.String() || whole != "" {
			t.Errorf("its own namespace: %q and %q", shown, whole)
		}
	}
}
