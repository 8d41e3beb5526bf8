"""Renders a chart with Helm's own code and holds what comes out against Kubernetes' schemas. For a Python of its own.

Standard input: {"chart": folder, "values": {name: values}}. Standard output: {name: {"documents", "errors", "lint"}}.
"""

import json
import sys

import helm_python as helm
import kubernetes_validate
import yaml

VERSION = "1.33"


def rendered(chart: str, values: dict) -> dict:
    try:
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(values)
            files = loaded.render(values, name="prod", namespace="ops")
    except helm.HelmError as error:
        return {"documents": [], "errors": [str(error)], "lint": []}
    documents = [one for text in files.values() for one in yaml.safe_load_all(text) if one]
    errors = []
    for document in documents:
        try:
            kubernetes_validate.validate(document, VERSION, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.InvalidSchemaError) as error:
            errors.append(f"{document['kind']} {document['metadata']['name']}: {error}")
    return {
        "documents": documents,
        "errors": errors,
        "lint": [one for one in helm.lint(chart, values)["messages"] if one["severity"] > 1],
    }


asked = json.load(sys.stdin)
json.dump({name: rendered(asked["chart"], values) for name, values in asked["values"].items()}, sys.stdout)
