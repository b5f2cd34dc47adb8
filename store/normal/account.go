package normal

import (
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// serviceAccountRecords returns the record of a ServiceAccount in a cluster. The record has the UID to compare with
// tokens. A ServiceAccount in a folder of files does not have a UID, and yields no record.
func serviceAccountRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	if obj.UID == "" {
		return nil
	}
	return r.record(model.KindServiceAccount, obj, obj.ID.Name, &model.ServiceAccountSpec{Uid: model.UID(obj.UID)})
}

// namespaceRecords returns the record of a Namespace in a cluster. The record states that the Namespace exists, even if
// its objects are not read. A Namespace in a folder of files yields no record.
func namespaceRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	if obj.ID.Origin.Source() != origin.Kube {
		return nil
	}
	return r.record(model.KindNamespace, obj, obj.ID.Name, &model.ServiceAccountSpec{})
}
