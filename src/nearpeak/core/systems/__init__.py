"""Values of systems of many devices: fabrics, meshes, model shapes, parallel plans and rank programs."""
