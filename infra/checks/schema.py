#!/usr/bin/env python3
"""Prints the schema of the few AWS types that infra/terraform uses, as JSON for provider.py.

The npm package @cdktn/provider-aws is generated from the schema of the real provider, and its
source maps still hold, for every argument, whether it is required, optional or computed, its type,
and how it nests. The provider's own validators and its sense of min_items above 1 are not in it.

usage: schema.py PACKAGE.tgz FOLDER... > schema.json
"""
import base64
import json
import re
import sys
import tarfile

SCALARS = {"string": "string", "number": "number", "boolean": "bool"}

# name: { value: ..., isBlock: ..., type: ..., storageClassType: ... }
ARGUMENT = re.compile(
    r"^\s+(\w+): \{\n\s+value: .*\n\s+isBlock: (\w+),\n\s+type: \"(\w+)\",\n"
    r"\s+storageClassType: \"(\w+)\"",
    re.M,
)
# The comment above each attribute's property.
FLAGS = re.compile(r"// (\w+) - computed: (\w+), optional: (\w+), required: (\w+)\n")


def typescript(archive, folders):
    """The generated TypeScript of each folder, out of its source maps. One pass: the archive is
    compressed as a whole."""
    texts = dict.fromkeys(folders, "")
    with tarfile.open(archive, "r|gz") as package:
        for member in package:
            _, _, name = member.name.partition("package/lib/")
            folder = name.partition("/")[0]
            if folder not in texts or not name.endswith(".js"):
                continue
            code = package.extractfile(member).read().decode()
            if "sourceMappingURL=data:" in code:
                encoded = code.rsplit("base64,", 1)[1].split()[0]
                texts[folder] += "".join(json.loads(base64.b64decode(encoded))["sourcesContent"])
    for folder, text in texts.items():
        if not text:
            sys.exit(f"{folder}: not in the package")
    return texts


def value_type(kind, storage):
    """Terraform's type of an argument that is no block."""
    if storage in SCALARS:
        return SCALARS[storage]
    shape = re.fullmatch(r"(string|number|boolean)(List|Map)", storage)
    if not shape:
        # An attribute of objects; nothing here writes one.
        return "dynamic"
    outer = "map" if shape[2] == "Map" else "set" if kind == "set" else "list"
    return [outer, SCALARS[shape[1]]]


def read_type(name, body):
    """Terraform's type of an attribute that is only read, by its getter."""
    getter = re.search(rf"this\.get(\w+)Attribute\('{name}'\)", body)
    return SCALARS.get(getter[1].lower() if getter else "", "dynamic")


class Source:
    """One folder's text, with its classes and conversion functions by name."""

    def __init__(self, text):
        self.classes = {
            found[1]: found[0]
            for found in re.finditer(r"^export class (\w+) extends .*?^\}", text, re.M | re.S)
        }
        self.functions = {
            found[1]: found[0]
            for found in re.finditer(
                r"^export function (\w+)ToHclTerraform\(.*?^\}", text, re.M | re.S
            )
        }

    def block(self, body, arguments):
        """The schema of a block: `body` is its class, `arguments` the text that lists them."""
        known = {found[1]: found for found in ARGUMENT.finditer(arguments)}
        flags = {found[1]: found for found in FLAGS.finditer(body)}
        attributes, blocks = {}, {}
        # Blocks of a provider have no class, and so no flags: all their arguments are optional.
        for name in flags.keys() | known.keys():
            argument, flag = known.get(name), flags.get(name)
            if argument and argument[2] == "true":
                blocks[name] = self.nested(name, argument, flag, body)
                continue
            shown = {"type": value_type(*argument.groups()[2:]) if argument else read_type(name, body)}
            words = zip(("computed", "optional", "required"), flag.groups()[1:] if flag else ())
            shown.update({word: True for word, said in words if said == "true"})
            if not flag:
                shown["optional"] = True
            attributes[name] = shown
        return {"attributes": attributes, "blocks": blocks}

    def nested(self, name, argument, flag, body):
        struct = re.sub(r"(List|OutputReference)$", "", argument[4])
        nesting = "single" if argument[3] == "struct" else argument[3]
        once = re.search(rf'new \w+OutputReference\(this, "{name}"', body)
        if once and argument[3] == "struct" and name != "timeouts":
            nesting = "list"
        function = self.functions.get(struct[0].lower() + struct[1:], "")
        inner = self.block(self.classes.get(struct + "OutputReference", ""), function)
        return {
            "nesting": nesting,
            "min": 1 if flag and flag[4] == "true" else 0,
            "max": 1 if once and nesting == "list" else 0,
            **inner,
        }

    def top(self):
        """What this folder is, its Terraform name and its schema."""
        for body in self.classes.values():
            kind = re.search(r"extends cdktn\.Terraform(Resource|DataSource|Provider) ", body)
            if kind:
                name = re.search(r'tfResourceType = "(\w+)"', body)[1]
                attributes, _, synthesis = body.partition("synthesizeHclAttributes()")
                return kind[1], name, self.block(attributes, synthesis)
        sys.exit("a folder without a resource")


def main():
    out = {"provider": None, "Resource": {}, "DataSource": {}}
    for text in typescript(sys.argv[1], sys.argv[2:]).values():
        kind, name, schema = Source(text).top()
        if kind == "Provider":
            out["provider"] = schema
        else:
            out[kind][name] = schema
    json.dump(out, sys.stdout, indent=1, sort_keys=True)


main()
